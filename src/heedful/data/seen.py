"""Which hashes came before: 8 bytes for each different one, however many millions there are."""

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.int64]


class Seen:
    """Sorted runs of growing length, as in a log-structured merge tree: a set of Python strings would take 100 bytes
    and more for each. While two runs are merged, they lie in memory twice.

    Two different pairs with equal 64-bit hashes are taken for one: among a million pairs with a chance of 3 in 10^8.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def add(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """True for each hash that was added before, or that stands earlier in `hashes`."""
        repeated = np.ones(len(hashes), dtype=bool)
        values, first = np.unique(hashes, return_index=True)
        known = np.zeros(len(values), dtype=bool)
        for run in self._runs:
            at = np.searchsorted(run, values)
            at[at == len(run)] = 0
            known |= run[at] == values
        repeated[first[~known]] = False
        self._append(values[~known])
        return repeated

    @property
    def n_different(self) -> int:
        return sum(len(run) for run in self._runs)

    def _append(self, run: Hashes) -> None:
        """Each run stays more than twice as long as the next: there are few of them, and each hash moves seldom."""
        if len(run):
            self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            pair = np.concatenate(self._runs[-2:])
            pair.sort(kind="stable")  # timsort: two sorted runs are merged in one go
            self._runs[-2:] = [pair]
