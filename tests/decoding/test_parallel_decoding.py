"""Parallel decoding finds what greedy search finds, in fewer passes of the model."""

from dataclasses import replace

import pytest

from ct2_models import make_engine, make_model
from gpt_writers import make_gpt
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.parallel_decoding import ParallelResult, decode_in_parallel
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.decoding.steps.reference import ReferenceBlockStep
from heedful.errors import UserError
from heedful.models.seq2seq import Seq2Seq
from heedful.text.special_ids import SpecialIds
from tiny_models import sentences, tiny_model
from tiny_translator import tiny_translator

GREEDY = SearchSettings(beam=1)


def decode(model: Seq2Seq, request: Request, *, block: int, settings: SearchSettings = GREEDY) -> ParallelResult:
    return decode_in_parallel(ReferenceBlockStep(model), request, settings, block=block)


@pytest.mark.parametrize("block", [1, 2, 8])
def test_the_result_is_that_of_greedy_search(block: int) -> None:
    model, requests = tiny_model(seed=20), sentences(60, seed=20)
    greedy = TorchEngine(model).search(requests, GREEDY)
    for request, (expected,) in zip(requests, greedy, strict=True):
        result = decode(model, request, block=block)
        assert result.hypothesis.ids == expected.ids
        assert result.hypothesis.complete == expected.complete
        assert result.hypothesis.score == pytest.approx(expected.score, abs=1e-4)
        assert result.hypothesis.normalized_score == pytest.approx(expected.normalized_score, abs=1e-4)
        assert result.n_passes <= len(expected.ids) + 1
        if block == 1:
            assert result.n_passes == len(expected.ids) + expected.complete


def test_learned_positions_are_not_overrun() -> None:
    model = tiny_model(seed=21, positions="learned", max_len=18)
    requests = sentences(20, seed=21)
    greedy = TorchEngine(model).search(requests, GREEDY)
    assert [decode(model, request, block=8).hypothesis.ids for request in requests] == [row[0].ids for row in greedy]


SPECIAL = {
    "usual": SpecialIds(),
    "forbidden": SpecialIds(forbidden_ids=(8, 11, 13)),
    "several ends": SpecialIds(extra_eos_ids=(7, 9)),
    "forced bos": SpecialIds(bos_id=5, decoder_start_id=2, source_bos=True, force_bos=True),
}
SETTINGS = {"usual": {}, "forbidden": {"forbidden": (6, 10, 12)}, "min_len": {"min_len": 7}, "max_len": {"max_len": 3}}


@pytest.mark.parametrize("special_ids", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("prefix", [(), (6,), (9, 4, 15), (6, 3, 9)], ids=["none", "one", "three", "with an end"])
def test_constraints_of_greedy_search_hold(
    special_ids: SpecialIds, changes: dict[str, object], prefix: tuple[int, ...]
) -> None:
    model = tiny_model(seed=20, special_ids=special_ids)
    requests = [replace(request, prefix=prefix) for request in sentences(8, seed=20)]
    settings = SearchSettings(**{"beam": 1, "max_len": 14, **changes})
    greedy = TorchEngine(model).search(requests, settings)
    for block in (1, 4, 8):
        for request, (expected,) in zip(requests, greedy, strict=True):
            hypothesis = decode(model, request, block=block, settings=settings).hypothesis
            assert (hypothesis.ids, hypothesis.complete) == (expected.ids, expected.complete)
            assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"beam": 5}, "beam = 5"),
        ({"no_repeat_ngram": 2}, "no_repeat_ngram"),
        ({"repetition_penalty": 1.3}, "repetition_penalty"),
        ({"sampling": Sampling()}, "sampling"),
        ({"attention": True}, "attention"),
    ],
)
def test_what_it_cannot_do_is_refused(changes: dict[str, object], word: str) -> None:
    engine = TorchEngine(tiny_model(seed=20))
    with pytest.raises(UserError, match=f"parallel = true: .*cannot do {word}"):
        engine.search([Request([5, 6])], SearchSettings(**{"beam": 1, "parallel": True, **changes}))
    parallel = SearchSettings(beam=1, parallel=True)
    with pytest.raises(UserError, match="forbidden words of several tokens"):
        engine.search([Request([5, 6], forbidden=[[7]])], parallel)
    with pytest.raises(UserError, match="required words"):
        engine.search([Request([5, 6], required=[[7]])], parallel)


def test_other_models_and_ctranslate2_refuse_it(tmp_path) -> None:
    parallel = SearchSettings(beam=1, parallel=True)
    model = make_model()
    for engine in (TorchEngine(make_gpt()), TorchEngine(model, others=[model])):
        with pytest.raises(UserError, match="for a single model of the family seq2seq"):
            engine.search([Request([5, 6])], parallel)
    with pytest.raises(UserError, match="has no parallel decoding"):
        make_engine(model, tmp_path / "ct2").search([Request([5, 6])], parallel)


def test_a_translator_decodes_in_parallel() -> None:
    translator = tiny_translator()
    texts = ["a dog", "two cats. a bird", ""]
    expected = translator.translate(texts, beam=1, max_len=9)
    assert translator.translate(texts, beam=1, max_len=9, parallel=True) == expected
    with pytest.raises(UserError, match="beam = 5"):
        translator.translate(texts, parallel=True)
