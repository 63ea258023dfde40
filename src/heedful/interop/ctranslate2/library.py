"""Load CTranslate2 so that its threads do not spin too long, and name its devices and ids.

Threads that share one sentence wait for each other after every matrix product. libgomp lets waiting threads spin for
milliseconds. That is fastest on an idle machine. On a busy one they occupy the core that the last thread needs: a
sentence of 20 ms was seen to take 10 s. If they sleep after some thousand spins, an idle machine is as fast, and a busy
one no slower than with one thread. If torch is in the process, its libgomp is used instead of CTranslate2's own, and
two threads are slower than one even on an idle machine.
"""

import functools
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from heedful.devices import cuda_index

WEIGHTS = "model.bin"  # of a converted model
SPIN_COUNT = "GOMP_SPINCOUNT"  # libgomp's environment variable
FEW_SPINS = "30000"
MOST_TOGETHER = 4  # threads for one sentence: a product of one row does not profit from more
SMALL = 8_000_000  # bytes of weights: in a smaller model, a product takes less time than the threads need to meet


class Library(NamedTuple):
    module: ModuleType
    threads_work_together: bool  # waiting threads sleep soon, so several can share a sentence


def library() -> ModuleType:
    """Return the module ctranslate2, imported at the first call."""
    return _load().module


def devices() -> list[str]:
    """Return the devices of CTranslate2: the CPU, and each GPU if it was built with CUDA."""
    return ["cpu", *(f"cuda:{number}" for number in range(library().get_cuda_device_count()))]


def placed(device: str) -> dict[str, Any]:
    """Return CTranslate2's arguments for a device, such as "cpu" or "cuda:1"."""
    return {"device": "cpu"} if device == "cpu" else {"device": "cuda", "device_index": cuda_index(device)}


def threads_for_one(folder: Path, n_threads: int) -> int:
    """Return how many of `n_threads` threads should share a single sentence in float32, for a converted model."""
    if not _load().threads_work_together or (folder / WEIGHTS).stat().st_size < SMALL:
        return 1
    return min(MOST_TOGETHER, n_threads)


@functools.cache
def _load() -> Library:
    """Import ctranslate2 with a lower spin count, which libgomp reads when it loads, unless the user has set one."""
    if SPIN_COUNT in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return Library(importlib.import_module("ctranslate2"), "torch" not in sys.modules)
    if "ctranslate2" in sys.modules or "torch" in sys.modules:
        return Library(importlib.import_module("ctranslate2"), False)
    os.environ[SPIN_COUNT] = FEW_SPINS
    try:
        return Library(importlib.import_module("ctranslate2"), True)
    finally:
        del os.environ[SPIN_COUNT]


def source_token(number: int) -> str:
    """Return the name of a source id in a converted model.

    It differs from the name of a target id: CTranslate2 answers a source of special tokens alone, which it knows by
    their names, without running the model.
    """
    return f"s{number}"


def target_token(number: int) -> str:
    """Return the name of a target id in a converted model."""
    return str(number)
