"""CTranslate2, with threads that do not wait too long for each other.

Threads that work together on one sentence meet at every product. libgomp lets those who come first spin until the last
one is there, for milliseconds. On an idle machine that is the fastest way; on a busy one they keep the last one from
its core, and a sentence of 20 ms was seen to take 10 s. After some thousand turns they had better sleep: that is as
fast on an idle machine, and no slower than one thread alone on a busy one. With torch in the same process its libgomp
is used in place of CTranslate2's own, and two threads are slower than one even on an idle machine.
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
TURNS = "GOMP_SPINCOUNT"
FEW = "30000"
MOST_TOGETHER = 4  # threads for one sentence: products of one row soon have no more in them
SMALL = 8_000_000  # bytes of weights: the products of a smaller model are done before the threads have met


class Library(NamedTuple):
    module: ModuleType
    threads_work_together: bool  # they are known to sleep


def library() -> ModuleType:
    return _load().module


def devices() -> list[str]:
    """Those that CTranslate2 can compute on: without a GPU, or built without CUDA, the processor alone."""
    return ["cpu", *(f"cuda:{number}" for number in range(library().get_cuda_device_count()))]


def placed(device: str) -> dict[str, Any]:
    """A device, by the name that heedful gives it, in CTranslate2's words: it counts GPUs apart."""
    return {"device": "cpu"} if device == "cpu" else {"device": "cuda", "device_index": cuda_index(device)}


def threads_for_one(folder: Path, n_threads: int) -> int:
    """How many of so many threads should work together on a single sentence in float32, with a converted model."""
    if not _load().threads_work_together or (folder / WEIGHTS).stat().st_size < SMALL:
        return 1
    return min(MOST_TOGETHER, n_threads)


@functools.cache
def _load() -> Library:
    """libgomp reads the number of turns when it is loaded. Whoever has set such a variable keeps it."""
    if TURNS in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return Library(importlib.import_module("ctranslate2"), "torch" not in sys.modules)
    if "ctranslate2" in sys.modules or "torch" in sys.modules:
        return Library(importlib.import_module("ctranslate2"), False)
    os.environ[TURNS] = FEW
    try:
        return Library(importlib.import_module("ctranslate2"), True)
    finally:
        del os.environ[TURNS]


def source_token(number: int) -> str:
    """Return the name of a source id in a converted model.

    It differs from the name of a target id: CTranslate2 answers a source of special tokens alone, which it knows by
    their names, without running the model.
    """
    return f"s{number}"


def target_token(number: int) -> str:
    """Return the name of a target id in a converted model."""
    return str(number)
