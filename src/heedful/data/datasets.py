"""Datasets of text for a `Loader`: prepared shards in, batches out.

| class | examples | batches |
| --- | --- | --- |
| `PairDataset` | sentence pairs; segmentations are sampled here if the shards keep text | `Batch` |
| `DenoisingDataset` | chunks of documents, corrupted anew in every epoch, to be restored | `Batch` |
| `PackedLmDataset` | rows of one length, cut from documents that follow each other | `LmBatch` |
| `RandomWindowDataset` | windows that begin anywhere in a text, as in nanoGPT | `LmBatch` |
| `MlmDataset` | chunks of documents in which some ids are masked | `LabelBatch` |
| `ClassificationDataset`, `TaggingDataset` | texts with a label for each text, or for each token | `LabelBatch` |

A new task needs a collate function and a subclass of `BatchDataset` with one method: see `ClassificationDataset`.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from heedful.data.collate import (
    IGNORE_INDEX,
    N_SPECIAL,
    Batch,
    LabelBatch,
    LmBatch,
    TensorBatch,
    collate_labels,
    collate_pairs,
    collate_windows,
)
from heedful.data.noising import Noised, mask_tokens
from heedful.data.seeding import IntArray, derived_seed, rng
from heedful.data.shards import Shards, Side
from heedful.errors import UserError
from heedful.text import SpecialIds, Tokenizer, Tokenizers

N_ATTEMPTS = 4  # how often a segmentation is sampled again if it is longer than planned

T = TypeVar("T")
B = TypeVar("B", bound=TensorBatch)
Noise = Callable[[IntArray, np.random.Generator], Noised]


class BatchDataset(Generic[B]):
    """Base of the datasets: the `Dataset` protocol of the loader, with `make_batch` left to the subclass.

    `keys` are hashes of the corpora, `sizes` their numbers of examples. Examples are numbered one corpus after the
    other; their lengths are those in a batch, special tokens included.
    """

    def __init__(
        self,
        keys: Sequence[str],
        sizes: Sequence[int],
        *,
        source_lengths: IntArray | None = None,
        target_lengths: IntArray,
        pin_memory: bool = False,
    ) -> None:
        self.keys, self.sizes, self.pin_memory = list(keys), list(sizes), pin_memory
        self.target_lengths: IntArray = target_lengths
        self.source_lengths: IntArray = (
            np.zeros(len(target_lengths), np.uint32) if source_lengths is None else source_lengths
        )

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> B:
        """Make this rank's batch: the rows `rows` of the step that has the examples `indices` and the seed `seed`."""
        batch = self.make_batch(np.asarray(indices[rows], np.int64), indices, rows, seed)
        return batch.pin_memory() if self.pin_memory else batch

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> B:
        """Make the batch of the examples `chosen`, which are `indices[rows]`.

        Whatever is random must depend on the seed and the row's number in the step alone, so that a row is the same
        for every number of ranks.
        """
        raise NotImplementedError


class ShardedCorpora:
    """Several corpora whose items (texts, rows, chunks) are numbered one corpus after the other."""

    def __init__(self, shards: Sequence[Shards], sizes: Sequence[int]) -> None:
        self.shards, self.sizes = list(shards), list(sizes)
        self._firsts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def locate(self, index: int) -> tuple[int, int]:
        """Return (the number of the corpus, the item's number in it)."""
        corpus = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return corpus, int(index - self._firsts[corpus])

    def take(self, indices: IntArray, read: Callable[[Shards, IntArray], list[T]]) -> list[T]:
        """Read items of all corpora, in the order of `indices`, with one call of `read(shards, numbers)` per corpus."""
        if len(self.shards) == 1:
            return read(self.shards[0], indices)
        items: dict[int, T] = {}
        for shards, first, size in zip(self.shards, self._firsts, self.sizes, strict=False):
            rows = np.flatnonzero((indices >= first) & (indices < first + size))
            items.update(zip(rows.tolist(), read(shards, indices[rows] - first), strict=True))
        return [items[row] for row in range(len(indices))]


def require_plain_ids(shards: Sequence[Shards]) -> None:
    """Raise a UserError unless all shards are plain text, prepared as ids."""
    for corpus in shards:
        if corpus.keep_text or corpus.target is not None:
            raise UserError(
                f"{corpus.folder}: holds sentence pairs or kept text; documents need plain text prepared as ids"
            )


# Sentence pairs


class PairDataset(BatchDataset[Batch]):
    """The sentence pairs of one or more corpora.

    If the shards keep text, the segmentation of each text is sampled with `tokenizers`; lengths are then upper limits.
    In a model with `special_ids.source_bos`, BOS stands before the ids of each source and each target, as BART's <s>.
    """

    def __init__(
        self,
        shards: Shards | Sequence[Shards],
        *,
        special_ids: SpecialIds,
        tokenizers: Tokenizers | None = None,
        pin_memory: bool = False,
    ) -> None:
        shards = [shards] if isinstance(shards, Shards) else list(shards)
        _check_pairs(shards, tokenizers)
        self.corpora = ShardedCorpora(shards, [len(corpus) for corpus in shards])
        self.tokenizers = tokenizers if shards[0].keep_text else None
        self.special_ids = special_ids
        self._n_special = 1 + special_ids.n_source_prefix
        super().__init__(
            [corpus.key for corpus in shards],
            self.corpora.sizes,
            source_lengths=_planned_lengths([corpus.source for corpus in shards], self._n_special),
            target_lengths=_planned_lengths([_target(corpus) for corpus in shards], self._n_special),
            pin_memory=pin_memory,
        )

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> Batch:
        """See `BatchDataset`. Segmentations are sampled for all examples of the step, whatever rows are asked for."""
        take = self.corpora.take
        if self.tokenizers is None:
            sources = take(chosen, lambda shards, numbers: shards.source.ids(numbers))
            targets = take(chosen, lambda shards, numbers: _target(shards).ids(numbers))
        else:
            texts = take(indices, lambda shards, numbers: shards.source.texts(numbers))
            limits = self.source_lengths[indices] - self._n_special
            sources = _sample(self.tokenizers.source, texts, limits, seed=derived_seed(seed, 0))
            texts = take(indices, lambda shards, numbers: _target(shards).texts(numbers))
            limits = self.target_lengths[indices] - self._n_special
            targets = _sample(self.tokenizers.target, texts, limits, seed=derived_seed(seed, 1))
            sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        if self.special_ids.source_bos:
            bos = [self.special_ids.bos_id]
            sources, targets = ([np.concatenate([bos, ids]) for ids in side] for side in (sources, targets))
        return collate_pairs(sources, targets, chosen, special_ids=self.special_ids)


def _check_pairs(shards: Sequence[Shards], tokenizers: Tokenizers | None) -> None:
    if not shards:
        raise UserError("no corpus was given")
    first = shards[0].manifest
    for corpus in shards:
        if corpus.target is None:
            raise UserError(f"{corpus.folder}: holds plain text; sentence pairs are needed")
        if (corpus.manifest.tokenizers, corpus.keep_text) != (first.tokenizers, first.keep_text):
            raise UserError(
                f"{corpus.folder} and {shards[0].folder}: prepared with different tokenizers or options; "
                "prepare both again"
            )
    if first.keep_text:
        if tokenizers is None:
            raise UserError(f"{shards[0].folder}: keeps text to be sampled; the tokenizers are needed to read it")
        if (tokenizers.source.fingerprint, tokenizers.target.fingerprint) != first.tokenizers:
            raise UserError(f"{shards[0].folder}: was prepared with other tokenizers")


def _target(shards: Shards) -> Side:
    assert shards.target is not None  # see _check_pairs
    return shards.target


def _planned_lengths(sides: Sequence[Side], n_special: int) -> IntArray:
    lengths = [side.planned_lengths for side in sides]
    joined = lengths[0] if len(lengths) == 1 else np.concatenate(lengths)
    joined += n_special
    return joined


def _sample(tokenizer: Tokenizer, texts: list[str], limits: IntArray, *, seed: int) -> list[IntArray]:
    """Sample a segmentation of each text, at most `limits` long, so that a batch does not exceed its planned size.

    A text whose samples are all longer gets its best segmentation instead.
    """
    if not tokenizer.can_sample:
        return [np.array(ids, np.int64) for ids in tokenizer.encode_batch(texts)]
    sampled: list[list[int]] = [[] for _ in texts]
    pending = list(range(len(texts)))
    for attempt in range(N_ATTEMPTS + 1):
        again = [texts[row] for row in pending]
        last = attempt == N_ATTEMPTS
        new = tokenizer.encode_batch(again) if last else tokenizer.sample_batch(again, seed=derived_seed(seed, attempt))
        for row, ids in zip(pending, new, strict=True):
            sampled[row] = ids
        pending = [row for row in pending if len(sampled[row]) > limits[row]]
        if not pending:
            break
    return [np.array(ids, np.int64) for ids in sampled]


# Documents in chunks


class DocumentChunks:
    """Documents in chunks of at most `max_len` ids, numbered one corpus after the other, document after document.

    With `truncate`, only the first chunk of each document is used.
    """

    def __init__(self, shards: Sequence[Shards], *, max_len: int, truncate: bool = False) -> None:
        if max_len < 1:
            raise UserError(f"data.max_len leaves {max_len} positions for a text: raise it")
        require_plain_ids(shards)
        chunks = "first chunks" if truncate else "chunks"
        self.keys = [f"{corpus.key} in {chunks} of {max_len}" for corpus in shards]
        tables = [_cut(corpus.source.lengths, max_len, truncate=truncate) for corpus in shards]
        self.documents = np.concatenate([document for document, _, _ in tables])
        self.starts = np.concatenate([start for _, start, _ in tables])
        self.lengths = np.concatenate([length for _, _, length in tables])
        self.corpora = ShardedCorpora(shards, [len(document) for document, _, _ in tables])
        self.sizes = self.corpora.sizes

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, indices: IntArray) -> list[IntArray]:
        """Read the ids of these chunks, in this order."""
        chunks: list[IntArray] = []
        for index in np.asarray(indices, np.int64).tolist():
            corpus, _ = self.corpora.locate(index)
            stream = self.corpora.shards[corpus].source.stream
            first = stream.bounds(int(self.documents[index]))[0] + int(self.starts[index])
            chunks.append(np.asarray(stream.values.read(first, first + int(self.lengths[index])), np.int64))
        return chunks


def _cut(lengths: IntArray, max_len: int, *, truncate: bool) -> tuple[IntArray, IntArray, IntArray]:
    """Compute (document, start, length) of each chunk. An empty document is a chunk only with `truncate`."""
    lengths = np.asarray(lengths, np.int64)
    if truncate:
        return np.arange(len(lengths)), np.zeros(len(lengths), np.int64), np.minimum(lengths, max_len)
    n_chunks = -(-lengths // max_len)
    document = np.repeat(np.arange(len(lengths)), n_chunks)
    before = np.repeat(np.cumsum(n_chunks) - n_chunks, n_chunks)
    start = (np.arange(len(document)) - before) * max_len
    return document, start, np.minimum(lengths[document] - start, max_len)


class DenoisingDataset(BatchDataset[Batch]):
    """Chunks of text with new noise in every epoch; `noise` returns the corrupted source and the target.

    Both sides count with the length of the whole chunk, although T5's target has only the masked ids. So the work of a
    step depends on its number of tokens, not on the noise.
    """

    def __init__(
        self, texts: DocumentChunks, noise: Noise, *, special_ids: SpecialIds, pin_memory: bool = False
    ) -> None:
        self.texts, self.noise, self.special_ids = texts, noise, special_ids
        lengths = (texts.lengths + 1).astype(np.uint32)
        super().__init__(texts.keys, texts.sizes, source_lengths=lengths, target_lengths=lengths, pin_memory=pin_memory)

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> Batch:
        noised = [self.noise(ids, rng(seed, int(row))) for ids, row in zip(self.texts.take(chosen), rows, strict=True)]
        inputs, targets = [pair.input for pair in noised], [pair.target for pair in noised]
        return collate_pairs(inputs, targets, chosen, special_ids=self.special_ids)


@dataclass(frozen=True)
class MlmMasking:
    """BERT's masking with the ids of a model: `masking(ids, generator)` returns the input and the labels.

    `starts[id]` is True for pieces that begin a word; with it, whole words are masked. Ids in `protected`, like special
    tokens, are never masked or drawn.
    """

    special_ids: SpecialIds
    mask_id: int
    vocab_size: int
    rate: float = 0.15
    starts: npt.NDArray[np.bool_] | None = None
    protected: Collection[int] = ()

    def __call__(self, ids: IntArray, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        noised = mask_tokens(
            ids,
            generator,
            special_ids=self.special_ids,
            mask_id=self.mask_id,
            vocab_size=self.vocab_size,
            rate=self.rate,
            starts=None if self.starts is None else self.starts[ids],
            protected=self.protected,
        )
        return noised.input, np.where(noised.target == self.special_ids.pad_id, IGNORE_INDEX, noised.target)


class MlmDataset(BatchDataset[LabelBatch]):
    """Chunks of text in which some ids are masked, in every epoch others; a label is the id that was masked."""

    def __init__(
        self, texts: DocumentChunks, masking: MlmMasking, *, special_ids: SpecialIds, pin_memory: bool = False
    ) -> None:
        self.texts, self.masking, self.special_ids = texts, masking, special_ids
        super().__init__(
            texts.keys,
            texts.sizes,
            target_lengths=(texts.lengths + N_SPECIAL).astype(np.uint32),
            pin_memory=pin_memory,
        )

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> LabelBatch:
        masked = [
            self.masking(ids, rng(seed, int(row))) for ids, row in zip(self.texts.take(chosen), rows, strict=True)
        ]
        inputs, labels = [ids for ids, _ in masked], [labels for _, labels in masked]
        return collate_labels(inputs, labels, chosen, special_ids=self.special_ids)


# Labelled texts


class ClassificationDataset(BatchDataset[LabelBatch]):
    """Texts with the number of each text's label; a text counts as one target token."""

    def __init__(
        self, texts: DocumentChunks, labels: IntArray, *, special_ids: SpecialIds, pin_memory: bool = False
    ) -> None:
        assert len(texts) == len(labels), "a label for each text"
        self.texts, self.labels, self.special_ids = texts, np.asarray(labels, np.int64), special_ids
        super().__init__(
            texts.keys,
            texts.sizes,
            source_lengths=(texts.lengths + N_SPECIAL).astype(np.uint32),
            target_lengths=np.ones(len(texts), np.uint32),
            pin_memory=pin_memory,
        )

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> LabelBatch:
        return collate_labels(self.texts.take(chosen), self.labels[chosen], chosen, special_ids=self.special_ids)


class TaggingDataset(BatchDataset[LabelBatch]):
    """Sentences with the number of each token's label, in memory: tagged corpora are small."""

    def __init__(
        self,
        sentences: Sequence[IntArray],
        labels: Sequence[IntArray],
        *,
        key: str,
        special_ids: SpecialIds,
        pin_memory: bool = False,
    ) -> None:
        self.sentences, self.labels, self.special_ids = sentences, labels, special_ids
        lengths = np.array([len(ids) + N_SPECIAL for ids in sentences], np.uint32)
        super().__init__([key], [len(sentences)], target_lengths=lengths, pin_memory=pin_memory)

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> LabelBatch:
        sentences, labels = [self.sentences[i] for i in chosen], [self.labels[i] for i in chosen]
        return collate_labels(sentences, labels, chosen, special_ids=self.special_ids)


# Running text for language models


class PackedLmDataset(BatchDataset[LmBatch]):
    """Rows of `row_len` tokens, cut from the documents of a corpus one after the other.

    Each document is read as BOS + ids and predicted as ids + EOS, so each id and each end is predicted once.
    """

    def __init__(
        self,
        shards: Shards | Sequence[Shards],
        *,
        row_len: int,
        special_ids: SpecialIds,
        pin_memory: bool = False,
    ) -> None:
        shards = [shards] if isinstance(shards, Shards) else list(shards)
        require_plain_ids(shards)
        self.row_len, self.special_ids = row_len, special_ids
        self.corpora = ShardedCorpora(shards, [-(-_n_tokens(corpus) // row_len) for corpus in shards])
        super().__init__(
            [f"{corpus.key} in rows of {row_len}" for corpus in shards],
            self.corpora.sizes,
            target_lengths=np.full(len(self.corpora), row_len, np.uint32),
            pin_memory=pin_memory,
        )

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> LmBatch:
        arrays = np.zeros((4, len(chosen), self.row_len), np.int64)
        arrays[:2], arrays[2] = self.special_ids.pad_id, -1
        for i, index in enumerate(chosen):
            corpus, row = self.corpora.locate(index)
            self._fill(arrays[:, i], self.corpora.shards[corpus], row)
        target_in, target_out, documents, positions = torch.from_numpy(arrays)
        return LmBatch(
            target_in=target_in,
            target_out=target_out,
            target_mask=documents >= 0,
            documents=documents,
            positions=positions,
            indices=torch.from_numpy(chosen),
        )

    def _fill(self, arrays: IntArray, shards: Shards, row: int) -> None:
        """Write one row: (input, output, document, position) x row_len.

        The stream of a corpus is its documents, each with one special token. Document d begins at offsets[d] + d of the
        stream, since each of the d documents before it adds a token that is not in the file.
        """
        target_in, target_out, documents, positions = arrays
        stream = shards.source.stream
        begin = row * self.row_len
        end = min(begin + self.row_len, _n_tokens(shards))
        document = bisect_right(range(len(stream)), begin, key=lambda d: stream.bounds(d)[0] + d) - 1
        at = begin
        while at < end:
            first, last = (bound + document for bound in stream.bounds(document))  # at `last`, EOS is predicted
            stop = min(end, last + 1)
            columns = slice(at - begin, stop - begin)
            # Position p of the stream predicts value p - document of the file, and reads the value before it.
            ids = stream.values.read(max(first, at - 1) - document, min(stop, last) - document)
            target_in[columns] = (
                np.concatenate([[self.special_ids.bos_id], ids])[: stop - at] if at == first else ids[: stop - at]
            )
            target_out[columns] = (
                np.append(ids, self.special_ids.eos_id)[-(stop - at) :] if stop > last else ids[-(stop - at) :]
            )
            documents[columns] = document
            positions[columns] = np.arange(stop - at)
            at, document = stop, document + 1


def _n_tokens(shards: Shards) -> int:
    """Count all ids, and one special token for each document."""
    return shards.manifest.sides["source"].tokens + len(shards)


class RandomWindowDataset(BatchDataset[LmBatch]):
    """Windows of `length` tokens, at positions that are sampled with the step's seed.

    An epoch has the number of windows that would cover the text without overlap. No special tokens are added: the
    last id of a document is followed by the first of the next.
    """

    def __init__(self, shards: Sequence[Shards], *, length: int, pin_memory: bool = False) -> None:
        self.length = length
        self.n_ids = [corpus.manifest.sides["source"].tokens for corpus in shards]
        for corpus, n_ids in zip(shards, self.n_ids, strict=True):
            if n_ids <= length:
                raise UserError(
                    f"{corpus.folder}: {n_ids:,} ids are too few for windows of {length + 1}: lower data.max_len, "
                    "or give more text"
                )
        self.corpora = ShardedCorpora(shards, [n_ids // length for n_ids in self.n_ids])
        super().__init__(
            [f"{corpus.key} in windows of {length}" for corpus in shards],
            self.corpora.sizes,
            target_lengths=np.full(len(self.corpora), length, np.uint32),
            pin_memory=pin_memory,
        )

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> LmBatch:
        """See `BatchDataset`. The index of a window decides its corpus only; its position is sampled in each step."""
        places = rng(seed).random(len(indices))
        windows = np.zeros((len(chosen), self.length + 1), np.int64)
        for i, (index, place) in enumerate(zip(chosen, places[rows], strict=True)):
            corpus, _ = self.corpora.locate(index)
            begin = int(place * (self.n_ids[corpus] - self.length))
            values = self.corpora.shards[corpus].source.stream.values
            windows[i] = values.read(begin, begin + self.length + 1)
        return collate_windows(windows, chosen)


def sequential_windows(shards: Shards, *, length: int, n_rows: int) -> list[LmBatch]:
    """Cut the whole text into windows, `n_rows` in a batch; each id but the first is predicted once."""
    n_ids = shards.manifest.sides["source"].tokens
    values = np.asarray(shards.source.stream.values.read(0, n_ids), np.int64)
    begins = np.arange(0, n_ids - 1, length)
    batches = []
    for start in range(0, len(begins), n_rows):
        group = begins[start : start + n_rows]
        windows = np.zeros((len(group), length + 1), np.int64)
        mask = np.zeros((len(group), length), bool)
        for row, begin in enumerate(group):
            ids = values[begin : begin + length + 1]
            windows[row, : len(ids)] = ids
            mask[row, : len(ids) - 1] = True
        batches.append(collate_windows(windows, np.arange(start, start + len(group)), mask))
    return batches
