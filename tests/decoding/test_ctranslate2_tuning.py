"""CTranslate2's threads: all of them share one sentence, each takes a batch of many; the tokens are equal."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ctranslate2
import pytest

from ct2_models import convert_here, make_engine, make_model, some_requests, tie
from heedful.decoding.engines import ctranslate2_engine
from heedful.decoding.engines.ctranslate2_engine import ModelReplicas
from heedful.decoding.engines.ctranslate2_tuning import Speed
from heedful.decoding.search.settings import SearchSettings
from heedful.interop.ctranslate2.library import MOST_TOGETHER, SMALL

TWO = Speed(inter=2, intra=1, batch=100, beam_batch=100)


@pytest.fixture(autouse=True)
def threads_that_work_together(monkeypatch) -> None:
    """Whoever imported CTranslate2 first."""
    monkeypatch.setattr(ctranslate2_engine, "threads_for_one", lambda folder, n_threads: min(MOST_TOGETHER, n_threads))


@pytest.fixture(scope="module")
def model():
    return make_model(residual="pre")


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    return convert_here(model, tmp_path_factory.mktemp("copies") / "model").folder


@pytest.fixture
def loaded(monkeypatch) -> list[tuple[int, int]]:
    """(inter, intra) of each translator that is opened."""
    opened: list[tuple[int, int]] = []
    real = ctranslate2.Translator

    def count(*given, inter_threads: int, intra_threads: int, **more):
        opened.append((inter_threads, intra_threads))
        return real(*given, inter_threads=inter_threads, intra_threads=intra_threads, **more)

    monkeypatch.setattr(ctranslate2, "Translator", count)
    return opened


def copies_of(folder: Path, speed: Speed = TWO, compute: str = "float32") -> ModelReplicas:
    return ModelReplicas(folder, compute=compute, device="cpu", speed=speed)


@pytest.mark.parametrize("beam", [1, 5])
def test_alone_a_sentence_gets_the_tokens_that_it_gets_among_many(beam, model, tmp_path, loaded):
    requests = some_requests(200, longest=14)
    engine = make_engine(model, tmp_path / "ct2", speed=TWO)
    settings = SearchSettings(beam=beam, max_len=20)
    together = engine.search(requests, settings)
    alone = [engine.search([request], settings)[0] for request in requests]
    assert loaded == [(2, 1), (1, 2)]
    for request, (many,), (one,) in zip(requests, together, alone, strict=True):
        assert one.ids == many.ids or tie(model, request, one, many) < 1e-4
        assert one.score == pytest.approx(many.score, abs=1e-4)


def test_who_translates_one_sentence_loads_the_model_once(model, tmp_path, loaded):
    engine = make_engine(model, tmp_path / "ct2", speed=TWO)
    assert loaded == []
    engine.search(some_requests(1), SearchSettings())
    engine.search(some_requests(2)[:1], SearchSettings())
    assert loaded == [(1, 2)]


def test_what_it_scores_again_is_scored_by_the_same_copy(model, tmp_path, loaded):
    engine = make_engine(model, tmp_path / "ct2", speed=TWO)
    engine.search(some_requests(1), SearchSettings(beam=1, min_len=3, max_len=9))
    assert loaded == [(1, 2)]


ONE_WAY = {
    "one thread": {"speed": Speed(1, 1)},
    "threads that work together anyway": {"speed": Speed(1, 4)},
}


@pytest.mark.parametrize("how", ONE_WAY.values(), ids=ONE_WAY)
def test_where_there_is_one_way_it_is_loaded_at_once(how, folder, loaded):
    copies = copies_of(folder, **how)
    assert len(loaded) == 1
    assert copies.choose(1) is copies.choose(100)
    assert len(loaded) == 1


def test_in_int8_one_thread_does_the_sentences_that_come_alone(model, tmp_path, loaded):
    engine = make_engine(model, tmp_path / "ct2", speed=TWO, compute="int8")
    requests, settings = some_requests(20), SearchSettings()
    alone = []
    for request in requests:
        alone += engine.search([request], settings)
        while engine._replicas._low_latency.translator.num_active_batches:  # it says so a moment after its answer
            time.sleep(0.001)
    assert loaded == [(1, 1)]
    assert [[one.ids for one in several] for several in engine.search(requests, settings)] == [
        [one.ids for one in several] for several in alone
    ]
    assert loaded == [(1, 1), (2, 1)]


@pytest.mark.parametrize(("compute", "ways"), [("int8", [1, 2, 1]), ("float32", [1, 1, 1])])
def test_who_would_wait_for_a_single_thread_goes_elsewhere(compute, ways, folder):
    copies = copies_of(folder, compute=compute)
    chosen = [copies.choose(1)]
    busy = SimpleNamespace(num_active_batches=1)
    copies._low_latency = chosen[0]._replace(translator=busy)
    chosen.append(copies.choose(1))
    busy.num_active_batches = 0
    chosen.append(copies.choose(1))
    assert [copy.inter for copy in chosen] == ways


def test_threads_that_spin_do_not_work_together(folder, loaded, monkeypatch):
    monkeypatch.setattr(ctranslate2_engine, "threads_for_one", lambda folder, n_threads: 1)
    copies_of(folder).choose(1)
    assert loaded == [(2, 1)]


@pytest.mark.parametrize(
    ("before", "variables", "size", "together"),
    [
        ("", {}, SMALL, 2),
        ("", {}, SMALL - 1, 1),
        ("import ctranslate2", {}, SMALL, 1),
        ("import torch", {}, SMALL, 1),
        ("", {"OMP_WAIT_POLICY": "passive"}, SMALL, 2),
        ("import torch", {"OMP_WAIT_POLICY": "passive"}, SMALL, 1),
    ],
    ids=[
        "ours",
        "small",
        "loaded before",
        "beside torch",
        "as the user wants it",
        "as the user wants it, beside torch",
    ],
)
def test_threads_are_told_when_to_sleep_as_the_library_is_loaded(before, variables, size, together, tmp_path):
    (tmp_path / "model.bin").write_bytes(bytes(size))
    program = f"""
import os
{before}
from pathlib import Path
from types import SimpleNamespace
from heedful.interop.ctranslate2.library import threads_for_one
together = threads_for_one(Path({str(tmp_path)!r}), 2)
assert "GOMP_SPINCOUNT" not in os.environ
print(together)
"""
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean | variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{together}\n"


def test_no_more_threads_than_there_are_and_not_too_many(folder, loaded):
    copies_of(folder, Speed(3, 1)).choose(2)
    copies_of(folder, Speed(16, 2)).choose(3)
    assert loaded == [(1, 3), (1, MOST_TOGETHER)]


def test_as_many_requests_as_threads_are_much(folder):
    copies = copies_of(folder, Speed(3, 1))
    assert [copies.choose(n).inter for n in (0, 1, 2, 3, 4)] == [1, 1, 1, 3, 3]


def test_of_a_large_model_there_is_one_copy(folder, loaded, monkeypatch):
    monkeypatch.setattr(ctranslate2_engine, "LARGE", 1)
    copies = copies_of(folder)
    assert [copies.choose(n).inter for n in (1, 1, 9, 1, 1)] == [1, 1, 2, 2, 2]
    assert loaded == [(1, 2), (2, 1)]
    assert copies._low_latency is None


def test_another_way_to_share_the_threads_is_taken_at_the_next_call(folder):
    copies = copies_of(folder)
    before = copies.choose(9)
    copies.change(Speed(1, 2))
    assert copies.choose(1) is copies.choose(9) is not before
