"""Prepared documents in stretches of at most so many ids, each an example of its own: for encoders.

Prepared sentence pairs as batches; where the shards keep text, segmentations are sampled here.

Running text as pairs of a damaged and a whole one, for encoder-decoders that learn to restore it.

Prepared documents as rows of one length, for language models: the stream of `pack_stream`, read where it is needed.

Each document is read as start + ids and predicted as ids + end, so that every id and every end is predicted once.

Running text as windows from random places, for language models: a stream without documents, as nanoGPT reads it.

Texts with questions about them: which label a text has, which label each token, which id was hidden.

A row is start + ids + end. `labels` holds the answers: one for each row, or one for each place, and NONE where nothing
is asked.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from heedful.data.collate import (
    IGNORE_INDEX,
    N_SPECIAL,
    Batch,
    LabelBatch,
    LmBatch,
    collate,
    collate_labels,
    window_batch,
)
from heedful.data.noising import Noised, mask_tokens
from heedful.data.seeding import IntArray, derived_seed, rng
from heedful.data.shards import Shards, Side
from heedful.errors import UserError
from heedful.text import SPECIAL, SpecialTokens, Tokenizer, Tokenizers


class DocumentChunks:
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


# A sampled text that is longer than was planned for is drawn so often, then segmented plainly.
ATTEMPTS = 4

T = TypeVar("T")


class PairDataset:
    """The pairs of one or more corpora, numbered one corpus after the other.

    Lengths are those in the batch: one more than the ids, for the mark; for text that will be sampled an upper limit.
    """

    def __init__(
        self,
        shards: Shards | Sequence[Shards],
        *,
        tokenizers: Tokenizers | None = None,
        pin_memory: bool = False,
        special: SpecialTokens = SPECIAL,
        first: int | None = None,
    ) -> None:
        self.shards = [shards] if isinstance(shards, Shards) else list(shards)
        _check(self.shards, tokenizers)
        self.tokenizers = tokenizers if self.shards[0].keep_text else None
        self.pin_memory = pin_memory
        self.special = special
        self.first = [] if first is None else [first]  # stands before each source and each target, as BART's <s>
        self.keys = [one.key for one in self.shards]
        self.sizes = [len(one) for one in self.shards]
        n_marks = 1 + len(self.first)
        self.source_lengths = _lengths([one.source for one in self.shards], n_marks)
        self.target_lengths = _lengths([_target(one) for one in self.shards], n_marks)
        self._firsts = np.cumsum([0, *self.sizes])

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> Batch:
        """Some rows of the step that consists of the examples `indices`; `seed` is the step's own.

        Segmentations are drawn for the whole step, then the rows are taken: a row has the same ids whatever the number
        of ranks.
        """
        chosen = indices[rows]
        if self.tokenizers is None:
            sources = self._read(chosen, lambda shards, numbers: shards.source.ids(numbers))
            targets = self._read(chosen, lambda shards, numbers: _target(shards).ids(numbers))
        else:
            texts = self._read(indices, lambda shards, numbers: shards.source.texts(numbers))
            n_marks = 1 + len(self.first)
            limits = self.source_lengths[indices] - n_marks
            sources = _sample(self.tokenizers.source, texts, limits, seed=derived_seed(seed, 0))
            texts = self._read(indices, lambda shards, numbers: _target(shards).texts(numbers))
            limits = self.target_lengths[indices] - n_marks
            targets = _sample(self.tokenizers.target, texts, limits, seed=derived_seed(seed, 1))
            sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        if self.first:
            sources, targets = ([np.concatenate([self.first, ids]) for ids in side] for side in (sources, targets))
        batch = collate(sources, targets, chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch

    def place(self, index: int) -> tuple[int, int]:
        """(number of the corpus, number of the example in it)."""
        corpus = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return corpus, int(index - self._firsts[corpus])

    def _read(self, indices: IntArray, read: Callable[[Shards, IntArray], list[T]]) -> list[T]:
        if len(self.shards) == 1:
            return read(self.shards[0], indices)
        found: dict[int, T] = {}
        for shards, first in zip(self.shards, self._firsts, strict=False):
            rows = np.flatnonzero((indices >= first) & (indices < first + len(shards)))
            found.update(zip(rows.tolist(), read(shards, indices[rows] - first), strict=True))
        return [found[row] for row in range(len(indices))]


def _check(shards: Sequence[Shards], tokenizers: Tokenizers | None) -> None:
    if not shards:
        raise UserError("no corpus was given")
    first = shards[0].manifest
    for one in shards:
        if one.target is None:
            raise UserError(f"{one.folder}: holds plain text, where pairs are needed")
        if (one.manifest.tokenizers, one.keep_text) != (first.tokenizers, first.keep_text):
            raise UserError(
                f"{one.folder} and {shards[0].folder}: prepared with different tokenizers or options; prepare both anew"
            )
    if first.keep_text:
        if tokenizers is None:
            raise UserError(f"{shards[0].folder}: keeps text to be sampled; the tokenizers are needed to read it")
        if (tokenizers.source.fingerprint, tokenizers.target.fingerprint) != first.tokenizers:
            raise UserError(f"{shards[0].folder}: was prepared with other tokenizers than those given")


def _target(shards: Shards) -> Side:
    assert shards.target is not None  # _check has seen to it
    return shards.target


def _lengths(sides: Sequence[Side], n_marks: int) -> IntArray:
    lengths = [side.planned_lengths for side in sides]
    joined = lengths[0] if len(lengths) == 1 else np.concatenate(lengths)
    joined += n_marks
    return joined


def _sample(tokenizer: Tokenizer, texts: list[str], limits: IntArray, *, seed: int) -> list[IntArray]:
    """A random segmentation of each text, within its limit: the ceiling of a batch holds for sampled text too."""
    if not tokenizer.can_sample:
        return [np.array(ids, np.int64) for ids in tokenizer.encode_batch(texts)]
    drawn: list[list[int]] = [[] for _ in texts]
    wanted = list(range(len(texts)))
    for attempt in range(ATTEMPTS + 1):
        again = [texts[row] for row in wanted]
        last = attempt == ATTEMPTS
        new = tokenizer.encode_batch(again) if last else tokenizer.sample_batch(again, seed=derived_seed(seed, attempt))
        for row, ids in zip(wanted, new, strict=True):
            drawn[row] = ids
        wanted = [row for row in wanted if len(drawn[row]) > limits[row]]
        if not wanted:
            break
    return [np.array(ids, np.int64) for ids in drawn]


Noise = Callable[[IntArray, np.random.Generator], Noised]


class DenoisingDataset:
    """Stretches of text, damaged anew in every epoch: a dataset for a loader.

    A stretch counts as long as it is on both sides, although T5 writes only what was hidden: so the same number of
    tokens in a step is about the same work, whatever the noise.
    """

    def __init__(
        self,
        texts: DocumentChunks,
        noise: Noise,
        *,
        special: SpecialTokens,
        pin_memory: bool = False,
    ) -> None:
        self.texts, self.noise = texts, noise
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = texts.keys, texts.sizes
        self.source_lengths: IntArray = (texts.lengths + 1).astype(np.uint32)
        self.target_lengths: IntArray = self.source_lengths

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> Batch:
        """See `Dataset`. A row's noise depends on the step's seed and the row's number in it alone."""
        chosen = np.asarray(indices[rows], np.int64)
        noised = [self.noise(ids, rng(seed, int(row))) for ids, row in zip(self.texts.take(chosen), rows, strict=True)]
        batch = collate([one.input for one in noised], [one.target for one in noised], chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch


class PackedLmDataset:
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

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LmBatch:
        """See `Dataset`; the seed changes nothing here."""
        chosen = np.asarray(indices[rows], np.int64)
        columns = np.zeros((4, len(chosen), self.row_len), np.int64)
        columns[:2], columns[2] = self.special.pad, -1
        for column, index in enumerate(chosen):
            corpus = bisect_right(self._firsts, index) - 1
            self._fill(columns[:, column], self.shards[corpus], int(index - self._firsts[corpus]))
        target_in, target_out, documents, positions = torch.from_numpy(columns)
        batch = LmBatch(
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


def _stream_length(shards: Shards) -> int:
    """All ids, and one mark for each document."""
    return shards.manifest.sides["source"].tokens + len(shards)


class RandomWindowDataset:
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

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LmBatch:
        """See `Dataset`. Places are drawn for the whole step: a row is the same whatever the number of ranks."""
        places = rng(seed).random(len(indices))
        chosen = np.asarray(indices[rows], np.int64)
        columns = np.zeros((len(chosen), self.length + 1), np.int64)
        for column, (index, place) in enumerate(zip(chosen, places[rows], strict=True)):
            corpus = bisect_right(self._firsts, index) - 1
            begin = int(place * (self.n_ids[corpus] - self.length))
            columns[column] = self.shards[corpus].source.stream.values.read(begin, begin + self.length + 1)
        batch = window_batch(columns, chosen)
        return batch.pin_memory() if self.pin_memory else batch


def sequential_windows(shards: Shards, *, length: int, rows: int) -> list[LmBatch]:
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


class ClassificationDataset:
    """Texts and the number of the label of each: a dataset for a loader, in which a text counts as one target token."""

    def __init__(
        self, texts: DocumentChunks, labels: IntArray, *, special: SpecialTokens, pin_memory: bool = False
    ) -> None:
        assert len(texts) == len(labels), "a label for each text"
        self.texts, self.labels = texts, np.asarray(labels, np.int64)
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = texts.keys, texts.sizes
        self.source_lengths: IntArray = (texts.lengths + N_SPECIAL).astype(np.uint32)
        self.target_lengths: IntArray = np.ones(len(texts), np.uint32)

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LabelBatch:
        """See `Dataset`; the seed changes nothing here."""
        chosen = np.asarray(indices[rows], np.int64)
        batch = collate_labels(self.texts.take(chosen), self.labels[chosen], chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch


class TaggingDataset:
    """Sentences and the numbers of the labels of their tokens, in memory: such corpora are made by hand, and small."""

    def __init__(
        self,
        sentences: Sequence[IntArray],
        labels: Sequence[IntArray],
        *,
        key: str,
        special: SpecialTokens,
        pin_memory: bool = False,
    ) -> None:
        self.sentences, self.labels = sentences, labels
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = [key], [len(sentences)]
        lengths = np.array([len(ids) + N_SPECIAL for ids in sentences], np.uint32)
        self.source_lengths: IntArray = np.zeros_like(lengths)
        self.target_lengths: IntArray = lengths

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LabelBatch:
        """See `Dataset`; the seed changes nothing here."""
        chosen = np.asarray(indices[rows], np.int64)
        sentences, labels = [self.sentences[i] for i in chosen], [self.labels[i] for i in chosen]
        batch = collate_labels(sentences, labels, chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch


@dataclass(frozen=True)
class MlmMasking:
    """BERT's masking, with the ids of its model; `starts`, by id, says which pieces begin a word: for whole words."""

    mask_id: int
    vocab_size: int
    rate: float = 0.15
    starts: npt.NDArray[np.bool_] | None = None
    protected: Collection[int] = ()

    def __call__(self, ids: IntArray, random: np.random.Generator) -> tuple[IntArray, IntArray]:
        noised = mask_tokens(
            ids,
            random,
            mask_id=self.mask_id,
            vocab_size=self.vocab_size,
            rate=self.rate,
            starts=None if self.starts is None else self.starts[ids],
            protected=self.protected,
        )
        return noised.input, np.where(noised.target == SPECIAL.pad, IGNORE_INDEX, noised.target)


class MlmDataset:
    """Texts in which some ids are hidden, others in every epoch: a dataset for a loader."""

    def __init__(
        self, texts: DocumentChunks, masking: MlmMasking, *, special: SpecialTokens, pin_memory: bool = False
    ) -> None:
        self.texts, self.masking = texts, masking
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = texts.keys, texts.sizes
        self.source_lengths: IntArray = np.zeros(len(texts), np.uint32)
        self.target_lengths: IntArray = (texts.lengths + N_SPECIAL).astype(np.uint32)

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LabelBatch:
        """See `Dataset`. What is hidden in a row depends on the step's seed and the row's number in it alone, so a row
        is the same whatever the number of ranks."""
        chosen = np.asarray(indices[rows], np.int64)
        noised = [
            self.masking(ids, rng(seed, int(row))) for ids, row in zip(self.texts.take(chosen), rows, strict=True)
        ]
        batch = collate_labels([a for a, _ in noised], [b for _, b in noised], chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch
