"""A converted model in memory: opened for much work, for one sentence, or for both, each when it is first needed.

Much work is done fastest by one thread for each of several batches. One sentence in float32 is done faster by several
threads together (on two cores 1.8 x). In int8 they would wait for each other longer than they compute; there it is one
thread that does the sentences that come alone: its caches are warm, which makes it a few per cent faster than the first
thread that is free.
"""

import threading
from pathlib import Path
from typing import Any, NamedTuple

from heedful.decoding.engines.ct2_speed import Speed
from heedful.interop.ctranslate2_library import WEIGHTS, library, placed, threads_for_one

LARGE = 100_000_000  # bytes of weights: of such a model there is one copy at a time, in a server too


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
        self._few, self._together = self._for_few()
        if self._few == 0:
            self.choose(1)  # there is only one way: whatever is wrong is told now

    def choose(self, n_requests: int) -> Copy:
        """The copy for a call with so many requests."""
        with self._loading:
            if n_requests <= self._few and not (self._much and self._is_large) and self._is_free():
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
            self._few, self._together = self._for_few()

    def _for_few(self) -> tuple[int, int]:
        """How many requests of a call are few, and the threads that then work together."""
        if self._speed.inter == 1 or self._device != "cpu":
            return 0, 1
        if self._compute != "float32":
            return 1, 1
        together = threads_for_one(self._folder, self._speed.inter * self._speed.intra)
        return together - 1, together

    def _is_free(self) -> bool:
        """Who would wait for a single thread goes to those for much work; all threads together are worth a wait."""
        return self._one is None or self._together > 1 or self._one.translator.num_active_batches == 0

    def _load(self, inter: int, intra: int) -> Copy:
        translator = library().Translator(
            str(self._folder),
            **placed(self._device),
            compute_type=self._compute,
            inter_threads=inter,
            intra_threads=intra,
        )
        return Copy(translator, inter)
