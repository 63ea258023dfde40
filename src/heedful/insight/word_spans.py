"""Which pieces make a word: the one rule by which views merge sub-words (docs/look.md, "Words")."""

import re
from collections.abc import Callable, Sequence

MARK = "▁"  # how tokenizers write a space; byte-level ones write Ġ
SPACES = (MARK, "Ġ")
INSIDE = "##"  # how WordPiece writes that no space stands before
# Scripts without spaces: nothing tells their words apart, so each piece counts as one.
_UNSPACED = re.compile(
    r"[\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# heedful's own, and those of the families' public models
_SPECIAL = re.compile(r"</?[a-z_]+>|<\|[a-z_]+\|>|\[[A-Z]+\]")


def word_spans(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """(first, end) of each word, in order, without gaps.

    A word begins at a piece that begins with the mark of a space (or, where spaces are suffixes, after one that ends
    with it; or, where `##` says that none is there, at every other piece), at a special mark and after one, and at a
    piece that begins with a Han or Kana character.
    """
    begins = _rule(tokens)
    starts = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or is_special(token) or is_special(tokens[i - 1]) or begins(token, tokens[i - 1])
    ]
    return [(first, end) for first, end in zip(starts, [*starts[1:], len(tokens)], strict=bool(starts))]


def is_special(piece: str) -> bool:
    return _SPECIAL.fullmatch(piece) is not None


def _rule(tokens: Sequence[str]) -> Callable[[str, str], bool]:
    longer = [token for token in tokens if len(token) > 1]
    if any(token.startswith(SPACES) for token in longer):
        return _begins
    if any(token.endswith(MARK) for token in longer):
        return _begins_with_suffixes
    return _begins_without_marks if any(token in ("[CLS]", "[SEP]") for token in tokens) else _begins


def _begins(token: str, before: str) -> bool:
    if before == MARK:  # a lone mark is the space before what follows it
        return False
    return token.startswith(SPACES) or _UNSPACED.match(token) is not None


def _begins_with_suffixes(token: str, before: str) -> bool:
    return before.endswith(MARK) or _UNSPACED.match(token) is not None


def _begins_without_marks(token: str, before: str) -> bool:
    return not token.startswith(INSIDE)
