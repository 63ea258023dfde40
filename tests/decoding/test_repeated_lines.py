"""A repeated line is translated once in a whole file, in bounded memory."""

import pytest

from echo_engine import EchoEngine, tokenizers
from heedful.decoding import translator
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import Sampling
from heedful.decoding.translator import TranslationCache, Translator
from heedful.models.model_info import SourceLimit

LINES = [f"line {'abcdefg'[number % 7]}" for number in range(100)]


def test_repeats_are_known_however_far_apart() -> None:
    engine = EchoEngine()
    translator = Translator(engine, tokenizers(), reach=SourceLimit(64))
    assert list(translator.stream(LINES, block=10)) == LINES
    assert len(engine.asked) == 7
    assert translator.translate(LINES[:7]) == LINES[:7]
    assert len(engine.asked) == 14  # one call knows nothing of another


def test_prefixes_make_other_requests_and_draws_are_never_repeats() -> None:
    engine = EchoEngine()
    translator = Translator(engine, tokenizers(), reach=SourceLimit(64))
    list(translator.stream(["same"] * 6, block=2, target_prefix=["a", "b", "a", "b", "c", "c"]))
    assert len(engine.asked) == 3
    list(translator.stream(["same"] * 6, block=2, sampling=Sampling()))
    assert len(engine.asked) == 9


def test_memory_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def search(requests):
        asked.extend(request.source[0] for request in requests)
        return [[Hypothesis([1] * 5, -1.0, -1.0)] for _ in requests]

    memory = TranslationCache(size=30)  # five numbers of a source and five of its translation: room for three
    for number in (1, 2, 3, 1, 4):  # 4 drives out 2, the one that was not needed for longest
        memory.find([Request([number] * 5)], search)
    assert asked == [1, 2, 3, 4]
    memory.find([Request([number] * 5) for number in (1, 3, 4)], search)
    assert asked == [1, 2, 3, 4]
    memory.find([Request([2] * 5)], search)
    assert asked == [1, 2, 3, 4, 2]
    memory.find([Request([9] * 100), Request([9] * 100)], search)  # larger than all of it: found, not kept
    memory.find([Request([9] * 100)], search)
    assert asked[-2:] == [9, 9]


def test_attention_counts_as_what_it_weighs() -> None:
    rows = [[0.5] * 8] * 4
    assert translator._size(Hypothesis([1] * 4, 0.0, 0.0, True, rows)) == 4 + 32
