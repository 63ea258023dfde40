"""Group subword pieces into words, by one rule for all views (docs/look.md, "Words")."""

import re
from collections.abc import Callable, Sequence

MARK = "▁"  # SentencePiece's sign for a space; byte-level tokenizers use Ġ
SPACES = (MARK, "Ġ")
INSIDE = "##"  # WordPiece's sign for a piece without a space before it
# Scripts without spaces have no word boundaries, so each piece counts as a word.
_UNSPACED = re.compile(
    r"[\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Special tokens of heedful and of public models
_SPECIAL = re.compile(r"</?[a-z_]+>|<\|[a-z_]+\|>|\[[A-Z]+\]")


def word_spans(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return (first, end) of each word, in order and without gaps.

    A word begins at a piece that starts with the sign of a space, at and after a special token, and at a piece that
    starts with a Han or Kana character. If spaces are suffixes, a word begins after a piece that ends with the sign;
    with WordPiece, at every piece without `##`.

    >>> word_spans(["▁The", "▁anim", "al", "</s>"])
    [(0, 1), (1, 3), (3, 4)]
    """
    begins = _rule(tokens)
    starts = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or is_special(token) or is_special(tokens[i - 1]) or begins(token, tokens[i - 1])
    ]
    return [(first, end) for first, end in zip(starts, [*starts[1:], len(tokens)], strict=bool(starts))]


def is_special(piece: str) -> bool:
    """Return whether a piece is a special token such as "</s>", "[CLS]" or "<|endoftext|>"."""
    return _SPECIAL.fullmatch(piece) is not None


def _rule(tokens: Sequence[str]) -> Callable[[str, str], bool]:
    longer = [token for token in tokens if len(token) > 1]
    if any(token.startswith(SPACES) for token in longer):
        return _begins
    if any(token.endswith(MARK) for token in longer):
        return _begins_with_suffixes
    return _begins_without_marks if any(token in ("[CLS]", "[SEP]") for token in tokens) else _begins


def _begins(token: str, before: str) -> bool:
    if before == MARK:  # a lone sign is the space before the next piece
        return False
    return token.startswith(SPACES) or _UNSPACED.match(token) is not None


def _begins_with_suffixes(token: str, before: str) -> bool:
    return before.endswith(MARK) or _UNSPACED.match(token) is not None


def _begins_without_marks(token: str, before: str) -> bool:
    return not token.startswith(INSIDE)
