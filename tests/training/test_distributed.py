"""Two ranks = one rank on the same batches; killed ranks come back to the same end; the number of ranks may change."""

import datetime
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from heedful.errors import UserError
from heedful.training import distributed
from heedful.training.distributed import fresh_store
from rank_runs import apart, torchrun_command, train
from small_run import OVERRIDES, write_corpus

# Without dropout, since every rank draws its own; in float64, where only the order of sums differs.
EXACT = [
    *OVERRIDES, "model.dropout=0.0", "run.precision=float64", "run.ema=0.0", "run.steps=12", "run.validate_every=6",
    "run.save_every=3",
]  # fmt: skip
NO_WORKERS = ["data.workers=0"]  # the batches are equal, and the run starts sooner


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    source, target = write_corpus(tmp_path_factory.mktemp("corpus"))
    return ["--source", str(source), "--target", str(target)]


@pytest.fixture(scope="module")
def one_rank(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return train(tmp_path_factory.mktemp("runs") / "one", corpus, *EXACT)


@pytest.mark.slow
def test_two_ranks_are_one(corpus: list[str], one_rank: dict[str, Tensor], tmp_path: Path) -> None:
    assert apart(train(tmp_path / "two", corpus, *EXACT, ranks=2), one_rank) <= 1e-10


@pytest.mark.slow
def test_sharded_ranks_are_one(corpus: list[str], one_rank: dict[str, Tensor], tmp_path: Path) -> None:
    sharded = train(tmp_path / "sharded", corpus, *EXACT, *NO_WORKERS, "run.parallel=fsdp", ranks=2)
    assert apart(sharded, one_rank) <= 1e-10


@pytest.mark.slow
def test_the_number_of_ranks_may_change(corpus: list[str], one_rank: dict[str, Tensor], tmp_path: Path) -> None:
    """1, then 2, then 1 ranks: the same examples in each step, so the same weights up to rounding."""
    run = tmp_path / "run"
    train(run, corpus, *EXACT, *NO_WORKERS, "run.steps=4")
    train(run, corpus, "run.steps=8", ranks=2, resume=True)
    last = train(run, corpus, "run.steps=12", resume=True)
    # The rate depends on the warm-up alone, not on how many steps are planned, so the pieces make one run.
    assert apart(last, one_rank) <= 1e-10


def test_ranks_join_in_a_new_namespace_of_a_used_store() -> None:
    """torchrun's store survives a restart; addresses of an earlier attempt must not be read again."""
    store = dist.HashStore()
    for _ in range(3):
        with ThreadPoolExecutor() as pool:
            others = [pool.submit(fresh_store, store, rank, 3) for rank in (1, 2)]
            time.sleep(0.2)  # the others come first, and find the name of the attempt before
            first = fresh_store(store, 0, 3)
            first.set("address", "here")
            assert [other.result().get("address") for other in others] == [b"here", b"here"]
        assert first.add("attempts", 1) == 1


def test_a_rank_without_rank_0_stops_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    store.set("namespace", "an earlier attempt")
    monkeypatch.setattr(distributed, "START_TIMEOUT", datetime.timedelta(seconds=1))
    with pytest.raises(UserError, match="rank 1 waited"):
        fresh_store(store, 1, 2)


@pytest.mark.slow
def test_a_killed_rank_comes_back_to_the_same_end(corpus: list[str], tmp_path: Path) -> None:
    """torchrun starts all ranks again; the run resumes, and ends bit for bit like one without a kill."""
    settings = [*OVERRIDES, "run.steps=16", "run.save_every=2"]
    expected = train(tmp_path / "quiet", corpus, *settings, ranks=2)
    run = tmp_path / "killed"
    process = subprocess.Popen(
        torchrun_command(run, corpus, *settings, ranks=2, resume=False, restarts=3),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list((run / "checkpoints").glob("step-*")))
    victim = sorted(children_of(process.pid))[-1]
    os.kill(victim, signal.SIGKILL)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 0, words[-3000:]
    killed = load_file(run / "last" / "model.safetensors")
    assert [name for name in expected if not torch.equal(expected[name], killed[name])] == []
    wait_for(lambda: not children_of(process.pid))


def wait_for(condition, seconds: float = 200.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def children_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found
