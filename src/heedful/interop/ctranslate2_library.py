"""CTranslate2, with threads that do not wait too long for each other.

Threads that work together on one sentence meet at every product. libgomp lets those who come first spin until the last
one is there, for milliseconds. On an idle machine that is the fastest way; on a busy one they keep the last one from
its core, and a sentence of 20 ms was seen to take 10 s. After some thousand turns they had better sleep: that is as
fast on an idle machine, and no slower than one thread alone on a busy one.
"""

import functools
import importlib
import os
import sys
from types import ModuleType
from typing import NamedTuple

TURNS = "GOMP_SPINCOUNT"
FEW = "30000"
MOST_TOGETHER = 4  # threads for one sentence: matrices of one row soon have no more in them


class Library(NamedTuple):
    module: ModuleType
    threads_work_together: bool  # they are known to sleep


def library() -> ModuleType:
    return _load().module


def threads_work_together() -> bool:
    return _load().threads_work_together


@functools.cache
def _load() -> Library:
    """libgomp reads the number of turns when it is loaded. Whoever has set such a variable keeps it."""
    if TURNS in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return Library(importlib.import_module("ctranslate2"), True)
    if "ctranslate2" in sys.modules:
        return Library(sys.modules["ctranslate2"], False)
    os.environ[TURNS] = FEW
    try:
        return Library(importlib.import_module("ctranslate2"), True)
    finally:
        del os.environ[TURNS]
