"""The time to tokenize a text is proportional to its length, for any text."""

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from heedful.text import SentencePieceTokenizer, TokenizerConfig

Of = Callable[[TokenizerConfig], SentencePieceTokenizer]

# Of the last three, each takes CPython's own NFC quadratic time; U+2581 takes the long way through the tokenizer.
UNITS = ["a", "_", " ", "\n", "\0", "日", "annoyingly ", "▁", "a▁", "\u0301", "\u0301\u0316", "\u0f73"]


def seconds(work: Callable[[Any], object], argument: object) -> float:
    """Return the shortest of several runs, in CPU time of this thread, which other programs do not change."""
    least = math.inf
    for _ in range(4):
        start = time.thread_time()
        work(argument)
        least = min(least, time.thread_time() - start)
    return least


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
def test_ten_times_the_text_takes_about_ten_times_as_long(tokenizer_of: Of, kind: str) -> None:
    tokenizer = tokenizer_of(TokenizerConfig(kind=kind, vocab_size=700))  # type: ignore[arg-type]
    for unit in UNITS:
        short, long = (("a" + unit * size)[:size] for size in (10_000, 100_000))
        ids = tokenizer.encode(long)
        if kind != "word":
            assert tokenizer.decode(ids) == tokenizer.normalize(long)
        some = ids[: len(ids) // 10]
        # Some milliseconds more or less are the machine's, not the text's.
        assert seconds(tokenizer.encode, long) <= 15 * seconds(tokenizer.encode, short) + 0.01, unit
        assert seconds(tokenizer.decode, ids) <= 15 * seconds(tokenizer.decode, some) + 0.01, unit
