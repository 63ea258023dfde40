"""Prepared documents as rows of one length, for language models: the stream of `pack_stream`, read where it is needed.

Each document is read as start + ids and predicted as ids + end, so that every id and every end is predicted once.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from heedful.data.batching import IntArray
from heedful.data.corpus import Example
from heedful.data.shards import Shards
from heedful.errors import UserError
from heedful.text import SPECIAL, SpecialTokens


@dataclass(frozen=True)
class RowBatch:
    """Rows of packed documents. Ids of different documents (`documents`) should not see each other."""

    target_in: Tensor  # (B, T) int64
    target_out: Tensor  # (B, T) int64
    target_mask: Tensor  # (B, T) bool, True = real; padding is only in the last row of a corpus
    documents: Tensor  # (B, T) int64: numbers of documents in their corpus, -1 for padding
    positions: Tensor  # (B, T) int64: from 0 in every piece of a document
    indices: Tensor  # (B,) int64: numbers of the rows

    def __len__(self) -> int:
        return self.indices.size(0)

    @property
    def n_target_tokens(self) -> int:
        return int(self.target_mask.sum())

    def to(self, device: torch.device | str) -> "RowBatch":
        return RowBatch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "RowBatch":
        return RowBatch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["RowBatch"]:
        """The same rows as micro-batches; some without rows if there are not enough."""
        parts = [getattr(self, f.name).tensor_split(n_parts) for f in fields(self)]
        return [RowBatch(*columns) for columns in zip(*parts, strict=True)]


class Rows:
    """The rows of one or more corpora of documents, numbered one corpus after the other: a dataset for a loader."""

    def __init__(
        self,
        shards: Shards | Sequence[Shards],
        *,
        row_len: int,
        pin_memory: bool = False,
        special: SpecialTokens = SPECIAL,
    ) -> None:
        self.shards = [shards] if isinstance(shards, Shards) else list(shards)
        self.pin_memory, self.special = pin_memory, special
        for one in self.shards:
            if one.keep_text or one.target is not None:
                raise UserError(f"{one.folder}: rows are cut from plain text prepared as ids, without targets")
        self.row_len = row_len
        self.keys = [f"{one.key} in rows of {row_len}" for one in self.shards]
        self.sizes = [-(-_stream_length(one) // row_len) for one in self.shards]
        self.source_lengths: IntArray = np.zeros(sum(self.sizes), np.uint32)
        self.target_lengths: IntArray = np.full(sum(self.sizes), row_len, np.uint32)
        self._firsts = np.cumsum([0, *self.sizes])

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> RowBatch:
        """See `Dataset`; the seed changes nothing here."""
        chosen = np.asarray(indices[rows], np.int64)
        columns = np.zeros((4, len(chosen), self.row_len), np.int64)
        columns[:2], columns[2] = self.special.pad, -1
        for column, index in enumerate(chosen):
            corpus = bisect_right(self._firsts, index) - 1
            self._fill(columns[:, column], self.shards[corpus], int(index - self._firsts[corpus]))
        target_in, target_out, documents, positions = torch.from_numpy(columns)
        batch = RowBatch(
            target_in=target_in,
            target_out=target_out,
            target_mask=documents >= 0,
            documents=documents,
            positions=positions,
            indices=torch.from_numpy(chosen),
        )
        return batch.pin_memory() if self.pin_memory else batch

    def _fill(self, columns: IntArray, shards: Shards, row: int) -> None:
        """Write one row: (in, out, document, position) x row_len."""
        target_in, target_out, documents, positions = columns
        stream = shards.source.stream
        begin = row * self.row_len
        end = min(begin + self.row_len, _stream_length(shards))
        # Document d begins at offsets[d] + d, since each one before it has a mark of its own.
        document = bisect_right(range(len(stream)), begin, key=lambda d: stream.bounds(d)[0] + d) - 1
        at = begin
        while at < end:
            first, last = (bound + document for bound in stream.bounds(document))  # at `last` its end is predicted
            stop = min(end, last + 1)
            place = slice(at - begin, stop - begin)
            # Virtual position p of this document predicts value p - document of the stream, and reads the one before.
            ids = stream.values.read(max(first, at - 1) - document, min(stop, last) - document)
            target_in[place] = (
                np.concatenate([[self.special.start], ids])[: stop - at] if at == first else ids[: stop - at]
            )
            target_out[place] = np.append(ids, self.special.end)[-(stop - at) :] if stop > last else ids[-(stop - at) :]
            documents[place] = document
            positions[place] = np.arange(stop - at)
            at, document = stop, document + 1


def join_lines(lines: Iterable[Example], *, max_characters: int = 1_000_000) -> Iterator[Example]:
    """Lines into documents: a blank line ends one (read with `keep_empty=True`); so does the limit, for the memory."""
    document: list[str] = []
    size = 0
    for line in lines:
        blank = not line.source.strip()
        if document and (blank or size + len(line.source) > max_characters):
            yield Example("\n".join(document))
            document, size = [], 0
        if not blank:
            document.append(line.source)
            size += len(line.source) + 1
    if document:
        yield Example("\n".join(document))


def _stream_length(shards: Shards) -> int:
    """All ids, and one mark for each document."""
    return shards.manifest.sides["source"].tokens + len(shards)
