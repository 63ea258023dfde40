"""Settings of the process and the machine that make training faster, set when a run starts and nowhere else."""

import ctypes
import os
import sys

import torch

from heedful.training.distributed import World
from heedful.training.settings import RunSettings


def settle_machine(settings: RunSettings, world: World) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(settings.threads or max(1, cores // local_ranks))
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
        torch.set_float32_matmul_precision("high")
    if world.device.type == "cpu":
        keep_freed_memory()


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
