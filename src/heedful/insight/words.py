"""Which pieces make a word: the one rule by which views merge sub-words (docs/look.md, "Words")."""

import re
from collections.abc import Sequence

from heedful.text import SPECIAL_PIECES

MARK = "▁"  # how tokenizers write a space
# Scripts without spaces: nothing tells their words apart, so each piece counts as one.
_UNSPACED = re.compile(
    r"[\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def word_spans(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """(first, end) of each word, in order, without gaps.

    A word begins at a piece that begins with the mark (or, where spaces are suffixes, after one that ends with it), at
    a special mark and after one, and at a piece that begins with a Han or Kana character.
    """
    longer = [token for token in tokens if len(token) > 1]
    suffixes = any(token.endswith(MARK) for token in longer) and not any(token.startswith(MARK) for token in longer)
    begins = _begins_with_suffixes if suffixes else _begins
    starts = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or token in SPECIAL_PIECES or tokens[i - 1] in SPECIAL_PIECES or begins(token, tokens[i - 1])
    ]
    return [(first, end) for first, end in zip(starts, [*starts[1:], len(tokens)], strict=bool(starts))]


def _begins(token: str, before: str) -> bool:
    if before == MARK:  # a lone mark is the space before what follows it
        return False
    return token.startswith(MARK) or _UNSPACED.match(token) is not None


def _begins_with_suffixes(token: str, before: str) -> bool:
    return before.endswith(MARK) or _UNSPACED.match(token) is not None
