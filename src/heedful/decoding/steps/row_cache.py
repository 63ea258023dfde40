"""The cache of the fast steps: keys and values of rows that may have different ages.

Tensors are (columns, N, H, K), with room for more columns, so that

- a step writes one contiguous column, and the rows of a large batch are read in order;
- reordering copies only the columns that are in use;
- columns that no row needs any more are dropped from the front without copying.

Row r begins in column starts[r], and its positions are counted from there: a new request can take the row of a finished
one while the other rows continue.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 32  # columns that are allocated at a time


class KVCache:
    """Several tensors (columns, N, H, K) of the same length, one for each layer; H and K may differ."""

    def __init__(self, n_rows: int, device: torch.device) -> None:
        self.tensors: list[Tensor] = []
        self._spare: list[Tensor] = []  # the tensors before the last reordering: memory to write into
        self.starts = torch.zeros(n_rows, dtype=torch.int64, device=device)  # (N,)
        self.length = 0  # columns written
        self.first = 0  # the first column that some row needs
        self.is_mixed = False  # whether rows have different ages

    @property
    def positions(self) -> Tensor:
        """The position of the next token of each row, (N,)."""
        return self.length - self.starts

    @property
    def longest(self) -> int:
        """The number of tokens of the oldest row."""
        return self.length - self.first

    def make_room(self) -> None:
        """Before a step, make room for its column."""
        if self.tensors and self.length == len(self.tensors[0]):
            self._copy(None)

    def write(self, layer: int, newest: Tensor) -> Tensor:
        """Write (N, H, K) into the next column of a layer; return the columns in use with it, (N, H, C, K)."""
        if len(self.tensors) <= layer:
            self.tensors.append(newest.new_empty(BLOCK, *newest.shape))
        tensor = self.tensors[layer]
        tensor[self.length] = newest
        return tensor[self.first : self.length + 1].permute(1, 2, 0, 3)

    def mask(self) -> Tensor | None:
        """Return which columns, the next one included, belong to each row, (N, 1, 1, C); None if all do."""
        if not self.is_mixed:
            return None
        columns = torch.arange(self.first, self.length + 1, device=self.starts.device)
        return (columns >= self.starts[:, None])[:, None, None]

    def reorder(self, rows: Tensor) -> None:
        """Let row i continue what row rows[i], of the same age, has been."""
        self._copy(rows)

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the given rows, in this order."""
        self._copy(rows)
        self.starts = self.starts[rows]
        self._refresh()

    def restart(self, rows: Tensor) -> None:
        """Let rows forget their past: they begin in the next column."""
        self.starts[rows] = self.length
        self._refresh()

    def write_prompt(self, rows: Tensor, prompts: Sequence[Tensor], lengths: Tensor) -> None:
        """Give rows another past: of each tensor (n, H, columns, K), row i gets the last lengths[i] columns."""
        columns = [prompt.permute(2, 0, 1, 3) for prompt in prompts]
        n_columns = len(columns[0])
        if not self.tensors:
            n_rows = len(self.starts)
            self.tensors = [_empty(x, n_rows, _room(n_columns), n_zeros=n_columns) for x in columns]
            self.length = n_columns
        elif n_columns > self.length:
            self._copy(None, n_before=n_columns - (self.length - self.first))
        for tensor, text in zip(self.tensors, columns, strict=True):
            tensor[self.length - n_columns : self.length, rows] = text
        self.starts[rows] = self.length - lengths
        self._refresh()

    def _refresh(self) -> None:
        """Compute what follows from `starts`."""
        first = int(self.starts.min()) if len(self.starts) else 0
        self.is_mixed = bool((self.starts != first).any())
        self.first = first

    def _copy(self, rows: Tensor | None, *, n_before: int = 0) -> None:
        """Copy the given rows of the columns in use, with room for more columns, and drop the columns before them."""
        used = slice(self.first, self.length)
        spare: Sequence[Tensor | None] = [None] * len(self.tensors) if n_before or not self._spare else self._spare
        self.tensors, self._spare = (
            [_copied(tensor[used], rows, old, n_before) for tensor, old in zip(self.tensors, spare, strict=True)],
            self.tensors,
        )
        self.starts = self.starts - self.first + n_before
        self.length += n_before - self.first
        self.first = 0


def _copied(used: Tensor, rows: Tensor | None, spare: Tensor | None, n_before: int) -> Tensor:
    """Copy rows of the columns into the spare tensor, or, if it is too small, into one with half as many more."""
    n_columns, n_rows = len(used), used.size(1) if rows is None else len(rows)
    if spare is None or spare.size(1) != n_rows or len(spare) <= n_columns:
        spare = _empty(used, n_rows, _room(n_before + n_columns), n_zeros=n_before)
    copy = spare[n_before : n_before + n_columns]
    if rows is None:
        copy.copy_(used)
    else:
        torch.index_select(used, 1, rows, out=copy)
    return spare


def _empty(like: Tensor, n_rows: int, n_columns: int, *, n_zeros: int) -> Tensor:
    """Allocate columns. The first are zeros: masked columns, too, must hold finite numbers."""
    room = like.new_empty(n_columns, n_rows, *like.shape[2:])
    room[:n_zeros] = 0
    return room


def _room(n_columns: int) -> int:
    return -(-(n_columns + n_columns // 2 + 1) // BLOCK) * BLOCK
