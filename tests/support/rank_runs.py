"""Runs of `heedful train` on one rank or several, as child processes."""

import socket
import sys
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from forked import run_command


def torchrun_command(
    run: Path, corpus: list[str], *settings: str, ranks: int, resume: bool, restarts: int = 0
) -> list[str]:
    """Return the command line that trains on several ranks under torchrun."""
    rendezvous = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    files = ["--resume"] if resume else corpus
    heedful = ["-m", "heedful", "train", str(run), *files, "--set", *settings]
    return [sys.executable, "-m", "torch.distributed.run", *rendezvous, *heedful]


def train(run: Path, corpus: list[str], *settings: str, ranks: int = 1, resume: bool = False) -> dict[str, Tensor]:
    """Run the command to its end on all ranks, in processes as torchrun starts them, and return the last weights."""
    args = ["train", str(run), *(["--resume"] if resume else corpus), "--set", *settings]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    run_command(*((args, {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)))
    return load_file(run / "last" / "model.safetensors")


def apart(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)
