"""Documents packed into rows one id at a time: the reference for `PackedLmDataset`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PackedRows:
    """Rows of ids (R, L). `documents` is the number of each id's document, -1 for padding; `positions` counts from 0
    in each part of a document that lies in one row."""

    ids: np.ndarray
    documents: np.ndarray
    positions: np.ndarray

    @property
    def mask(self) -> np.ndarray:
        """Return a mask (R, L), True for ids, False for padding."""
        return self.documents >= 0


def pack_rows(documents: Sequence[np.ndarray], row_len: int, *, pad: int = 0) -> PackedRows:
    """Write the documents one after the other into rows of `row_len` ids; only the last row is padded."""
    n_rows = -(-sum(map(len, documents)) // row_len)
    ids = np.full(n_rows * row_len, pad)
    numbers = np.full(n_rows * row_len, -1)
    positions = np.zeros(n_rows * row_len, int)
    place = 0
    for number, document in enumerate(documents):
        position = 0
        for id_ in document:
            position = 0 if place % row_len == 0 else position
            ids[place], numbers[place], positions[place] = id_, number, position
            place, position = place + 1, position + 1
    return PackedRows(*(column.reshape(n_rows, row_len) for column in (ids, numbers, positions)))
