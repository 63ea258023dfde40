"""Running text as windows from random places, for language models: a stream without documents, as nanoGPT reads it."""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import torch

from heedful.data.batching import IntArray, generator
from heedful.data.rows import RowBatch
from heedful.data.shards import Shards
from heedful.errors import UserError


class Windows:
    """A dataset for a loader in which each window begins at a place that the step's seed draws.

    An epoch has as many windows as would cover the text side by side. No marks are added: what follows the last id of
    a document is the first of the next.
    """

    def __init__(self, shards: Sequence[Shards], *, length: int, pin_memory: bool = False) -> None:
        self.shards, self.length, self.pin_memory = list(shards), length, pin_memory
        self.n_ids = [one.manifest.sides["source"].tokens for one in self.shards]
        for one, n_ids in zip(self.shards, self.n_ids, strict=True):
            if n_ids <= length:
                raise UserError(
                    f"{one.folder}: {n_ids:,} ids are too few for windows of {length} and what follows them: lower "
                    "data.max_len, or give more text"
                )
        self.keys = [f"{one.key} in windows of {length}" for one in self.shards]
        self.sizes = [n_ids // length for n_ids in self.n_ids]
        self.source_lengths: IntArray = np.zeros(sum(self.sizes), np.uint32)
        self.target_lengths: IntArray = np.full(sum(self.sizes), length, np.uint32)
        self._firsts = np.cumsum([0, *self.sizes])

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> RowBatch:
        """See `Dataset`. Places are drawn for the whole step: a row is the same whatever the number of ranks."""
        places = generator(seed).random(len(indices))
        chosen = np.asarray(indices[rows], np.int64)
        columns = np.zeros((len(chosen), self.length + 1), np.int64)
        for column, (index, place) in enumerate(zip(chosen, places[rows], strict=True)):
            corpus = bisect_right(self._firsts, index) - 1
            begin = int(place * (self.n_ids[corpus] - self.length))
            columns[column] = self.shards[corpus].source.stream.values.read(begin, begin + self.length + 1)
        batch = window_batch(columns, chosen)
        return batch.pin_memory() if self.pin_memory else batch


def side_by_side(shards: Shards, *, length: int, rows: int) -> list[RowBatch]:
    """The whole text as windows that follow each other, so many in a batch: each id but the first is asked for once."""
    n_ids = shards.manifest.sides["source"].tokens
    values = np.asarray(shards.source.stream.values.read(0, n_ids), np.int64)
    begins = np.arange(0, n_ids - 1, length)
    batches = []
    for start in range(0, len(begins), rows):
        group = begins[start : start + rows]
        columns = np.zeros((len(group), length + 1), np.int64)
        real = np.zeros((len(group), length), bool)
        for row, begin in enumerate(group):
            ids = values[begin : begin + length + 1]
            columns[row, : len(ids)] = ids
            real[row, : len(ids) - 1] = True
        batches.append(window_batch(columns, np.arange(start, start + len(group)), real))
    return batches


def window_batch(columns: IntArray, indices: IntArray, real: IntArray | None = None) -> RowBatch:
    """Rows of length + 1 ids: all but the last are read, all but the first are asked for."""
    ids = torch.from_numpy(columns)
    shape = (len(columns), columns.shape[1] - 1)
    mask = torch.ones(shape, dtype=torch.bool) if real is None else torch.from_numpy(real)
    return RowBatch(
        target_in=ids[:, :-1],
        target_out=ids[:, 1:],
        target_mask=mask,
        documents=torch.where(mask, 0, -1),
        positions=torch.arange(shape[1]).expand(shape),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )
