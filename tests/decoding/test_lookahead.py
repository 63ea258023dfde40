"""Guessing ahead changes nothing but the number of rounds."""

from dataclasses import replace

import pytest

from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.decoding.steps.parallel_decoding import look_ahead
from heedful.errors import UserError
from heedful.text.special_ids import SpecialIds
from tiny_models import sentences, tiny_model


@pytest.mark.parametrize("block", [1, 2, 8])
def test_the_result_is_the_greedy_one(block: int) -> None:
    model, requests = tiny_model(seed=20), sentences(60, seed=20)
    greedy = TorchEngine(model).search(requests, SearchSettings(beam=1))
    for request, (expected,) in zip(requests, greedy, strict=True):
        looked = look_ahead(model, request, block=block)
        assert looked.ids == expected.ids
        assert looked.rounds <= len(expected.ids) + 1
        if block == 1:
            assert looked.rounds == len(expected.ids) + expected.complete


def test_learned_positions_are_not_overrun() -> None:
    model = tiny_model(seed=21, positions="learned", max_len=18)
    requests = sentences(20, seed=21)
    greedy = TorchEngine(model).search(requests, SearchSettings(beam=1))
    assert [look_ahead(model, request, block=8).ids for request in requests] == [row[0].ids for row in greedy]


SPECIAL = {
    "usual": SpecialIds(),
    "forbidden": SpecialIds(forbidden_ids=(8, 11, 13)),
    "several ends": SpecialIds(extra_eos_ids=(7, 9)),
    "opened": SpecialIds(bos_id=5, decoder_start_id=2, source_bos=True, force_bos=True),
}
SETTINGS = {
    "usual": {},
    "forbidden": {"forbidden": (6, 10, 12)},
    "at least so many": {"min_len": 7},
    "short": {"max_len": 3},
}


@pytest.mark.parametrize("special_ids", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("prefix", [(), (6,), (9, 4, 15)])
def test_what_greedy_search_is_told_is_told_here(
    special_ids: SpecialIds, changes: dict[str, object], prefix: tuple[int, ...]
) -> None:
    model = tiny_model(seed=20, special_ids=special_ids)
    requests = [replace(request, prefix=prefix) for request in sentences(8, seed=20)]
    settings = SearchSettings(**{"beam": 1, "max_len": 14, **changes})
    greedy = TorchEngine(model).search(requests, settings)
    for block in (1, 4, 8):
        looked = [look_ahead(model, request, block=block, settings=settings).ids for request in requests]
        assert looked == [row[0].ids for row in greedy]


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
    with pytest.raises(UserError, match=f"look_ahead: cannot do {word}"):
        look_ahead(tiny_model(seed=20), Request([5, 6]), settings=SearchSettings(**{"beam": 1, **changes}))
    with pytest.raises(UserError, match="forbidden runs"):
        look_ahead(tiny_model(seed=20), Request([5, 6], forbidden=[[7]]))
    with pytest.raises(UserError, match="required words"):
        look_ahead(tiny_model(seed=20), Request([5, 6], required=[[7]]))
