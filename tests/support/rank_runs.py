"""Runs of `heedful train` on one rank or several, as child processes."""

import os
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor


def command(run: Path, corpus: list[str], *settings: str, ranks: int, resume: bool, restarts: int = 0) -> list[str]:
    python = [sys.executable, "-m"]
    if ranks > 1:
        rendezvous = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        python += ["torch.distributed.run", *rendezvous, "-m"]
    files = ["--resume"] if resume else corpus
    return [*python, "heedful", "train", str(run), *files, "--set", *settings]


def train(run: Path, corpus: list[str], *settings: str, ranks: int = 1, resume: bool = False) -> dict[str, Tensor]:
    """Run the command to its end, and return the weights of the last step."""
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
