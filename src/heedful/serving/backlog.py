"""What waits for one model, and how long that will take: foretold by how fast the last batches were.

A request that could not be answered in time is refused at once, and its client told when to come again. On a slow
machine, or behind a large model, a queue that is bounded by its size alone would accept what nobody waits for any more.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

PER_TOKEN = 4  # characters, in scripts with spaces between words
# Where scripts without spaces begin and end, in turn: those of `long_text.UNSPACED`, and what lies between them.
_UNSPACED_FROM = np.array([0x2E80, 0xA000, 0xF900, 0xFB00, 0xFE30, 0xFE50, 0xFF00, 0xFF61, 0x20000, 0x40000])
PER_TEXT = 40  # characters that a text costs beside its own: short ones are decoded as slowly as some longer ones
HALF_WORK, HALF_SECONDS = 50_000, 10.0  # after so much work, or time at work, a batch counts half
PLANNED = 0.8  # of the time for an answer that may be taken by what is ahead; the rest is for mistakes
OF_A_BATCH = 0.25  # of the time for an answer that one batch may take: it is answered only when all of it is found
RETRY_AFTER = (1, 30)  # seconds


def size_of(text: str) -> int:
    """Characters as the budgets count them, about four to a token.

    Chinese and Japanese have about one token for each character: there one counts as four. It is called on the event
    loop, for whatever clients send: 5,000 characters take some 50 µs, in whatever order they stand.
    """
    if text.isascii():
        return len(text)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    places = np.searchsorted(_UNSPACED_FROM, codes, side="right")
    n_unspaced = int(np.count_nonzero(places & 1))  # behind the start of a range, before its end
    return len(text) + (PER_TOKEN - 1) * n_unspaced


def work_of(texts: Sequence[str], *, beam: int) -> int:
    """What texts cost, beside each other: every hypothesis of the beam is written as far as the text is long."""
    return beam * (sum(map(size_of, texts)) + PER_TEXT * len(texts))


class Backlog:
    """Asked and changed on the event loop; but `learn` and `batch` are called by threads, one at a time."""

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.work = 0  # accepted, not yet answered
        self._seconds = seconds  # until an answer must be there
        self._clock = clock
        # Of past batches. The later one is, the more it counts; so does a large one, since small ones are slow for
        # their size, and do not say how fast a full queue is.
        self._took, self._done = 0.0, 0.0
        self._last_end: float | None = None

    def now(self) -> float:
        return self._clock()

    def learn(self, work: int, began: float) -> None:
        """A batch is done. The first does not count: much is loaded and set up then.

        Of several at a time, each counts only from where the one before ended.
        """
        before, self._last_end = self._last_end, self._clock()
        if before is None:
            return
        seconds = self._last_end - max(began, before)
        keep = 0.5 ** max(work / HALF_WORK, seconds / HALF_SECONDS)
        self._took, self._done = keep * self._took + seconds, keep * self._done + work

    def wait(self, work: int = 0) -> float:
        """Seconds until this much more would be done; 0 as long as nothing was learned."""
        return self._pace * (self.work + work)

    def has_time_for(self, work: int) -> bool:
        """Whether it would be answered in time; who is alone is let in, or nobody ever would be."""
        return self.work == 0 or self.wait(work) <= PLANNED * self._seconds

    def batch(self, n_threads: int) -> float:
        """The most work for one of so many threads that decode at a time."""
        return OF_A_BATCH * self._seconds / n_threads / self._pace if self._pace else float("inf")

    def retry_after(self) -> int:
        """When it may be worth to come again: whole seconds, until what is ahead is done."""
        least, most = RETRY_AFTER
        return max(least, min(most, round(self.wait())))

    @property
    def _pace(self) -> float:
        """Seconds for a unit of work."""
        return self._took / self._done if self._done else 0.0
