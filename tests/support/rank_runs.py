"""TODO"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from small_run import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    source, target = write_corpus(tmp_path_factory.mktemp("corpus"))
    return ["--source", str(source), "--target", str(target)]


def command(run: Path, corpus: list[str], *settings: str, ranks: int, resume: bool, restarts: int = 0) -> list[str]:
    python = [sys.executable, "-m"]
    if ranks > 1:
        rendezvous = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        python += ["torch.distributed.run", *rendezvous, "-m"]
    given = ["--resume"] if resume else corpus
    return [*python, "heedful", "train", str(run), *given, "--set", *settings]


def train(run: Path, corpus: list[str], *settings: str, ranks: int = 1, resume: bool = False) -> dict[str, Tensor]:
    """Run the command to its end; the weights of the last step."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command(run, corpus, *settings, ranks=ranks, resume=resume),
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(run / "last" / "model.safetensors")


def apart(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)
