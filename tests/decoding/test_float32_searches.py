"""A thousand sentences in float32: both engines and all batch sizes find equal translations, except for ties."""

import pytest

from ct2_models import make_engine, make_model, some_requests, tie
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps import packed_linear
from heedful.models.seq2seq import Seq2Seq

REQUESTS = some_requests(1000, longest=14)
SEARCHES = {"greedy": SearchSettings(beam=1, max_len=16), "beam 5": SearchSettings(beam=5, max_len=16)}


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return make_model(residual="pre")


def assert_same(
    model: Seq2Seq, requests: list[Request], found: list[list[Hypothesis]], expected: list[list[Hypothesis]]
) -> None:
    """The best of each; where two differ, the first tokens that do, or the whole texts, tie within 1e-4."""
    n_ties = 0
    for request, (a, *_), (b, *_) in zip(requests, found, expected, strict=True):
        assert a.normalized_score == pytest.approx(b.normalized_score, abs=1e-4)
        if a.ids != b.ids:
            n_ties += 1
            assert tie(model, request, a, b) < 1e-4 or abs(a.normalized_score - b.normalized_score) < 1e-5
        else:
            assert (a.complete, a.score) == (b.complete, pytest.approx(b.score, abs=1e-3))
    assert n_ties <= len(requests) // 100


@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_ctranslate2_finds_what_torch_finds_for_a_thousand_sentences(model, settings, tmp_path):
    found = make_engine(model, tmp_path / "ct2").search(REQUESTS, settings)
    expected = TorchEngine(model).search(REQUESTS, settings)
    assert len({tuple(best[0].ids) for best in expected}) > 300  # they are not all alike
    assert_same(model, REQUESTS, found, expected)


@pytest.mark.skipif(not packed_linear.packing_works(), reason="this torch has no packed products")
@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_in_float32_any_batch_and_any_refill_is_one_by_one(model, settings, monkeypatch):
    made: list[packed_linear.PackedLinear] = []
    really = packed_linear.PackedLinear.__init__
    monkeypatch.setattr(
        packed_linear.PackedLinear, "__init__", lambda self, *args: really(self, *args) or made.append(self)
    )
    monkeypatch.setattr(packed_linear, "SMALL", 1)  # products of small models are packed, too
    requests = REQUESTS[:120]
    width = settings.beam
    alone = TorchEngine(model, batch_rows=width, lanes=1)
    expected = [alone.search([request], settings)[0] for request in requests]
    # All at once; few places, which are refilled again and again; others beside them.
    for engine, order in (
        (TorchEngine(model, batch_rows=120 * width, lanes=1), list(range(120))),
        (TorchEngine(model, batch_rows=7 * width, lanes=1), list(range(120))),
        (TorchEngine(model, batch_rows=16 * width, lanes=2), list(range(119, -1, -1))),
    ):
        found = engine.search([requests[number] for number in order], settings)
        assert_same(model, [requests[n] for n in order], found, [expected[n] for n in order])
    assert sum("packed" in vars(one) for one in made) > 10
