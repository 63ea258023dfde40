"""Guessing ahead changes nothing but the number of rounds."""

import pytest
from tiny_models import sentences, tiny_model

from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.lookahead import look_ahead


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
