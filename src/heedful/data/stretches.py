"""Prepared documents in stretches of at most so many ids, each an example of its own: for encoders."""

from collections.abc import Sequence

import numpy as np

from heedful.data.batching import IntArray
from heedful.data.shards import Shards
from heedful.errors import UserError


class Stretches:
    """The stretches of one or more corpora, numbered one corpus after the other, and document after document.

    A document is cut wherever a stretch is full; with `only_first` the rest of it is left out.
    """

    def __init__(self, shards: Sequence[Shards], *, longest: int, only_first: bool = False) -> None:
        self.shards = list(shards)
        if longest < 1:
            raise UserError(f"data.max_len leaves {longest} places for a text: raise it")
        for one in self.shards:
            if one.keep_text or one.target is not None:
                raise UserError(f"{one.folder}: stretches are cut from plain text prepared as ids, without targets")
        what = "first stretches" if only_first else "stretches"
        self.keys = [f"{one.key} in {what} of {longest}" for one in self.shards]
        tables = [_cut(one.source.lengths, longest, only_first=only_first) for one in self.shards]
        self.sizes = [len(document) for document, _, _ in tables]
        self.documents = np.concatenate([document for document, _, _ in tables])
        self.starts = np.concatenate([start for _, start, _ in tables])
        self.lengths = np.concatenate([length for _, _, length in tables])
        self._firsts = np.cumsum([0, *self.sizes])

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, numbers: IntArray) -> list[IntArray]:
        """The ids of these stretches, in that order."""
        taken: list[IntArray] = []
        for number in np.asarray(numbers, np.int64).tolist():
            corpus = int(np.searchsorted(self._firsts, number, side="right")) - 1
            stream = self.shards[corpus].source.stream
            first = stream.bounds(int(self.documents[number]))[0] + int(self.starts[number])
            taken.append(np.asarray(stream.values.read(first, first + int(self.lengths[number])), np.int64))
        return taken


def _cut(lengths: IntArray, longest: int, *, only_first: bool) -> tuple[IntArray, IntArray, IntArray]:
    """(document, start, length) of each stretch; an empty document is one empty stretch only where it must count."""
    lengths = np.asarray(lengths, np.int64)
    if only_first:
        return np.arange(len(lengths)), np.zeros(len(lengths), np.int64), np.minimum(lengths, longest)
    n_stretches = -(-lengths // longest)
    document = np.repeat(np.arange(len(lengths)), n_stretches)
    before = np.repeat(np.cumsum(n_stretches) - n_stretches, n_stretches)
    start = (np.arange(len(document)) - before) * longest
    return document, start, np.minimum(lengths[document] - start, longest)
