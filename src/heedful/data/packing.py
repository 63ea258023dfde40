"""Documents of any length in rows of one length, for language models: where each piece goes, then the rows.

The pieces are a pure function of the lengths. Nothing is lost: every id of every document stands in exactly one place.
In the rows, documents carry their numbers (a mask keeps them apart) and positions begin again with every piece.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heedful.data.seeding import IntArray
from heedful.text import SPECIAL


@dataclass(frozen=True)
class Pieces:
    """Piece i: `length` ids from `start` in `document`, put into `row` from `column`. Rows are numbered from 0."""

    document: IntArray
    start: IntArray
    length: IntArray
    row: IntArray
    column: IntArray

    def __len__(self) -> int:
        return len(self.document)

    @property
    def n_rows(self) -> int:
        return int(self.row.max(initial=-1)) + 1


@dataclass(frozen=True)
class Packed:
    """Rows of ids; where `documents` is -1 there is only padding."""

    ids: IntArray  # (R, L)
    documents: IntArray  # (R, L): the number of the document that each id belongs to
    positions: IntArray  # (R, L): 0, 1, 2, ... within each piece

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """(R, L), True = a real id."""
        real: npt.NDArray[np.bool_] = self.documents >= 0
        return real


def pack_stream(lengths: IntArray, row_len: int) -> Pieces:
    """One document after the other, cut wherever a row is full: no padding but in the last row."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    document_starts = (ends - lengths)[np.asarray(lengths) > 0]
    begin = np.union1d(document_starts, np.arange(0, total, row_len))  # a piece begins with a document or with a row
    document = np.searchsorted(ends, begin, side="right")
    return Pieces(
        document=document,
        start=begin - (ends - lengths)[document],
        length=np.diff(begin, append=total),
        row=begin // row_len,
        column=begin % row_len,
    )


def pack_best_fit(lengths: IntArray, row_len: int) -> Pieces:
    """Documents whole: the longest first, each into the fullest row that still holds it.

    Only a document longer than a row is cut: into full rows, and a rest that is packed like a document.
    """
    pieces: list[tuple[int, int, int, int, int]] = []
    n_rows = 0
    rests: list[tuple[int, int, int]] = []  # (-length, document, start): sorts longest first, then by number
    for document, length in enumerate(np.asarray(lengths).tolist()):
        whole = length // row_len * row_len
        for start in range(0, whole, row_len):
            pieces.append((document, start, row_len, n_rows, 0))
            n_rows += 1
        if length > whole:
            rests.append((whole - length, document, whole))
    free: list[tuple[int, int]] = []  # (free places, -row), sorted: the fullest row comes first, of equals the newest
    for negative, document, start in sorted(rests):
        length = -negative
        at = bisect_left(free, (length, -n_rows))
        if at == len(free):
            space, row = row_len, n_rows
            n_rows += 1
        else:
            space, row = free[at][0], -free[at][1]
            del free[at]
        pieces.append((document, start, length, row, row_len - space))
        if space > length:
            insort(free, (space - length, -row))
    table = np.array(pieces, np.int64).reshape(-1, 5)
    return Pieces(*table.T)


def fill_rows(documents: Sequence[IntArray], pieces: Pieces, *, row_len: int) -> Packed:
    """The rows that the pieces describe; `documents[number]` are the ids of a document."""
    shape = (pieces.n_rows, row_len)
    ids = np.full(shape, SPECIAL.pad, np.int64)
    numbers = np.full(shape, -1, np.int64)
    positions = np.zeros(shape, np.int64)
    columns = zip(pieces.document, pieces.start, pieces.length, pieces.row, pieces.column, strict=True)
    for document, start, length, row, column in columns:
        places = slice(column, column + length)
        ids[row, places] = documents[document][start : start + length]
        numbers[row, places] = document
        positions[row, places] = np.arange(length)
    return Packed(ids=ids, documents=numbers, positions=positions)
