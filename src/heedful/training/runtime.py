"""Settings of the process and the machine that make training faster, set when a run starts and nowhere else."""

import ctypes
import os
import resource
import sys
from dataclasses import replace

import torch

from heedful.devices import n_cores
from heedful.training.distributed import World, broadcast_from_rank0
from heedful.training.settings import RunSettings


def configure_runtime(settings: RunSettings, world: World) -> RunSettings:
    """Prepare this process; the same settings, with the numbers named in which this machine computes."""
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(settings.threads or max(1, n_cores() // local_ranks))
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
        torch.set_float32_matmul_precision("high")
    if world.device.type == "cpu":
        keep_freed_memory()
    if settings.precision != "auto":
        return settings
    # Written into the run's record, so that it goes on in the same numbers elsewhere too.
    return replace(
        settings, precision=broadcast_from_rank0(world, "bfloat16" if has_bfloat16_units(world.device) else "float32")
    )


def has_bfloat16_units(device: torch.device) -> bool:
    """Whether products of matrices in bfloat16 (half the bits, sums in float32) are twice as fast here, or faster."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process has held so far; of a GPU's memory, if it has one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def keep_freed_memory() -> None:
    """Tell glibc to keep what is freed: a page given back must be zeroed and mapped again at its next use, and a step
    frees and takes the same hundreds of megabytes over and over."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_max, 0)
