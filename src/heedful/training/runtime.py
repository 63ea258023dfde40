"""What a run sets in its process and measures of its machine: threads, precision, memory."""

import ctypes
import os
import resource
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from heedful.devices import n_cores
from heedful.training.distributed import World, broadcast_from_rank0
from heedful.training.settings import RunSettings

if TYPE_CHECKING:
    from heedful.training.trainer import Trainer


def configure_runtime(settings: RunSettings, world: World) -> RunSettings:
    """Set threads, device and memory of this process; return the settings with `precision` resolved."""
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(settings.threads or max(1, n_cores() // local_ranks))
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
        torch.set_float32_matmul_precision("high")
    if world.device.type == "cpu":
        keep_freed_memory()
    if settings.precision != "auto":
        return settings
    # It is written into settings.toml, so that the run is resumed in the same precision on another machine, too.
    return replace(
        settings, precision=broadcast_from_rank0(world, "bfloat16" if has_bfloat16_units(world.device) else "float32")
    )


def has_bfloat16_units(device: torch.device) -> bool:
    """Return whether the device has units for bfloat16, which makes matrix products at least twice as fast."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))


def peak_memory(device: torch.device) -> int:
    """Return the most bytes that this process has held so far; on a GPU, of the GPU's memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def keep_freed_memory() -> None:
    """Make glibc keep freed memory (Linux).

    Every step frees and allocates the same hundreds of megabytes. A page that is given back to the system must be
    zeroed and mapped again at its next use.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_max, 0)


def choose_threads(trainer: "Trainer") -> int:
    """Set the number of threads to one or to one per core, whichever is faster now, and return it.

    On a busy machine, threads wait for each other at every operation: with two threads and one other process on two
    cores, training takes twenty times as long as with one thread. On a quiet machine all cores are faster.
    """
    n_most = torch.get_num_threads()
    _, batches = trainer.loader.trial_batches()
    speeds = {}
    for n_threads in (n_most, 1):
        torch.set_num_threads(n_threads)
        trainer.trial_pass(batches[0])  # starts threads and allocates memory
        speeds[n_threads] = max(trainer.trial_pass(batches[i % len(batches)]) for i in range(3))
    n_best = max(speeds, key=lambda n_threads: speeds[n_threads])
    torch.set_num_threads(n_best)
    if n_best < n_most:
        trainer.emit(
            "note",
            text=f"one thread instead of {n_most}: the machine is busy, and one thread is "
            f"{speeds[1] / speeds[n_most]:.1f} times as fast as {n_most} (--set run.threads=… sets another number)",
        )
    return n_best
