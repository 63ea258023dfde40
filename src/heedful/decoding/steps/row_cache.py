"""What a decoder keeps of the tokens that it was fed: one column for each step, laid out for speed.

Tensors are (rows, heads, columns, K), with room for more columns: a step writes one and reads the others where they
lie, a reordering copies only what is used, and columns that no row needs any more fall off the front for nothing. Rows
may be of different ages: row r began in column starts[r], and its positions are counted from there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 32  # columns taken at a time


class Columns:
    """Several tensors (N, H, columns, K), all of one length; H and K are each one's own."""

    def __init__(self, n_rows: int, device: torch.device) -> None:
        self.tensors: list[Tensor] = []
        self._spare: list[Tensor] = []  # the same before rows were last taken: memory to write in
        self.starts = torch.zeros(n_rows, dtype=torch.int64, device=device)  # (N,)
        self.length = 0  # columns written
        self.first = 0  # the first that some row still needs
        self.mixed = False  # rows are of different ages

    def make_room(self) -> None:
        """Before a step: a column for it."""
        if self.length == self.tensors[0].size(2):
            self._copy(None)

    def write(self, number: int, newest: Tensor) -> Tensor:
        """Put (N, H, K) into the next column of a tensor; all columns that are needed, this one with them."""
        tensor = self.tensors[number]
        tensor[:, :, self.length] = newest
        return tensor[:, :, self.first : self.length + 1]

    def mask(self) -> Tensor | None:
        """(N, 1, 1, C): which columns are each row's own, the next one with them; None if all have all."""
        if not self.mixed:
            return None
        columns = torch.arange(self.first, self.length + 1, device=self.starts.device)
        return (columns >= self.starts[:, None])[:, None, None]

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what was row rows[i], which is as old."""
        self._copy(rows)

    def take(self, rows: Tensor) -> None:
        """Row i goes on from what was row rows[i]."""
        self._copy(rows)
        self.starts = self.starts[rows]
        self._refresh()

    def lay(self, rows: Tensor, texts: Sequence[Tensor], lengths: Tensor) -> None:
        """Give rows another past: of each tensor (n, H, columns, K) row i has the last lengths[i] columns."""
        n_columns = texts[0].size(2)
        if not self.tensors:
            n_rows = len(self.starts)
            self.tensors = [_empty(x, n_rows, _room(n_columns), zeros=n_columns) for x in texts]
            self.length = n_columns
        elif n_columns > self.length:
            self._copy(None, before=n_columns - (self.length - self.first))
        for tensor, text in zip(self.tensors, texts, strict=True):
            tensor[rows, :, self.length - n_columns : self.length] = text
        self.starts[rows] = self.length - lengths
        self._refresh()

    def _refresh(self) -> None:
        """What follows from starts, and is the same for many steps."""
        first = int(self.starts.min()) if len(self.starts) else 0
        self.mixed = bool((self.starts != first).any())
        self.first = first

    def _copy(self, rows: Tensor | None, *, before: int = 0) -> None:
        """The given rows of the columns in use, with room for more; what fell off the front stays behind."""
        used = slice(self.first, self.length)
        spare: Sequence[Tensor | None] = [None] * len(self.tensors) if before or not self._spare else self._spare
        self.tensors, self._spare = (
            [_taken(tensor[:, :, used], rows, old, before) for tensor, old in zip(self.tensors, spare, strict=True)],
            self.tensors,
        )
        self.starts = self.starts - self.first + before
        self.length += before - self.first
        self.first = 0


def _taken(used: Tensor, rows: Tensor | None, spare: Tensor | None, before: int) -> Tensor:
    """Rows of the columns, and room for half as many columns again; in the spare's memory, if it is large enough."""
    n_rows, n_columns = used.size(0) if rows is None else len(rows), used.size(2)
    if spare is None or spare.size(0) != n_rows or spare.size(2) <= n_columns:
        spare = _empty(used, n_rows, _room(before + n_columns), zeros=before)
    spare[:, :, before : before + n_columns] = used if rows is None else used[rows]
    return spare


def _empty(like: Tensor, n_rows: int, n_columns: int, *, zeros: int) -> Tensor:
    """Room for columns. The first are zeros: where some rows have nothing there must still be numbers."""
    room = like.new_empty(n_rows, like.size(1), n_columns, like.size(3))
    room[:, :, :zeros] = 0
    return room


def _room(n_columns: int) -> int:
    return -(-(n_columns + n_columns // 2 + 1) // BLOCK) * BLOCK
