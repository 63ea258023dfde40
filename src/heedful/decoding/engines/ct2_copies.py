"""A converted model in memory: opened for much work, for one sentence, or for both, each when it is first needed.

Much work is done fastest by one thread for each of several batches. One sentence in float32 is done faster by several
threads together (on two cores 1.8 x); in int8 the threads wait for each other longer than they compute.
"""

import threading
from pathlib import Path
from typing import Any, NamedTuple

from heedful.decoding.engines.ct2_speed import Speed
from heedful.interop.ctranslate2_library import WEIGHTS, library, threads_for_one

LARGE = 200_000_000  # bytes of weights: of such a model there is one copy at a time


class Copy(NamedTuple):
    translator: Any
    inter: int  # batches at a time


class Copies:
    """Several threads may ask at once. Who works with a copy holds it: it may be dropped here meanwhile."""

    def __init__(self, folder: Path, *, compute: str, device: str, speed: Speed) -> None:
        self._folder, self._compute, self._device, self._speed = folder, compute, device, speed
        self._much: Copy | None = None
        self._one: Copy | None = None
        self._loading = threading.Lock()
        self._is_large = (folder / WEIGHTS).stat().st_size > LARGE
        self._together = self._for_one()
        if self._together == 1:
            self.choose(1)  # there is only one way: whatever is wrong is told now

    def choose(self, n_requests: int) -> Copy:
        """The copy for a call with so many requests."""
        with self._loading:
            if n_requests < self._together and not (self._much and self._is_large):
                self._one = self._one or self._load(1, self._together)
                return self._one
            if self._is_large:
                self._one = None
            self._much = self._much or self._load(self._speed.inter, self._speed.intra)
            return self._much

    def change(self, speed: Speed) -> None:
        """Share the threads in another way from now on."""
        with self._loading:
            self._speed, self._much, self._one = speed, None, None
            self._together = self._for_one()

    def _for_one(self) -> int:
        """Threads for a call with fewer requests than these; 1: such a call is like any other."""
        if self._speed.inter == 1 or self._compute != "float32" or self._device != "cpu":
            return 1
        return threads_for_one(self._folder, self._speed.inter * self._speed.intra)

    def _load(self, inter: int, intra: int) -> Copy:
        translator = library().Translator(
            str(self._folder),
            device=self._device,
            compute_type=self._compute,
            inter_threads=inter,
            intra_threads=intra,
        )
        return Copy(translator, inter)
