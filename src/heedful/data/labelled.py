"""Texts with questions about them: which label a text has, which label each token, which id was hidden.

A row is start + ids + end. `labels` holds the answers: one for each row, or one for each place, and NONE where nothing
is asked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.data.batching import IntArray, generator
from heedful.data.noising import mask_tokens
from heedful.data.stretches import Stretches
from heedful.text import SPECIAL, SpecialTokens

NONE = -1
N_MARKS = 2  # start and end


@dataclass(frozen=True)
class LabelBatch:
    """Rows of ids and the answers wanted of them. May have no rows, as `Batch`."""

    ids: Tensor  # (B, S) int64: start, ids, end
    mask: Tensor  # (B, S) bool, True = real
    labels: Tensor  # (B,) or (B, S) int64
    indices: Tensor  # (B,) int64: example numbers in the corpus

    def __len__(self) -> int:
        return self.indices.size(0)

    @property
    def n_target_tokens(self) -> int:
        return int((self.labels != NONE).sum())

    def to(self, device: torch.device | str) -> "LabelBatch":
        return LabelBatch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "LabelBatch":
        return LabelBatch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["LabelBatch"]:
        """The same rows as micro-batches; some without rows if there are not enough."""
        parts = [getattr(self, f.name).tensor_split(n_parts) for f in fields(self)]
        return [LabelBatch(*columns) for columns in zip(*parts, strict=True)]


class Classified:
    """Texts and the number of the label of each: a dataset for a loader, in which a text counts as one target token."""

    def __init__(self, texts: Stretches, labels: IntArray, *, special: SpecialTokens, pin_memory: bool = False) -> None:
        assert len(texts) == len(labels), "a label for each text"
        self.texts, self.labels = texts, np.asarray(labels, np.int64)
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = texts.keys, texts.sizes
        self.source_lengths: IntArray = (texts.lengths + N_MARKS).astype(np.uint32)
        self.target_lengths: IntArray = np.ones(len(texts), np.uint32)

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LabelBatch:
        """See `Dataset`; the seed changes nothing here."""
        chosen = np.asarray(indices[rows], np.int64)
        batch = collate_labels(self.texts.take(chosen), self.labels[chosen], chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch


class Tagged:
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
        lengths = np.array([len(ids) + N_MARKS for ids in sentences], np.uint32)
        self.source_lengths: IntArray = np.zeros_like(lengths)
        self.target_lengths: IntArray = lengths

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LabelBatch:
        """See `Dataset`; the seed changes nothing here."""
        chosen = np.asarray(indices[rows], np.int64)
        sentences, labels = [self.sentences[i] for i in chosen], [self.labels[i] for i in chosen]
        batch = collate_labels(sentences, labels, chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch


@dataclass(frozen=True)
class Masking:
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
        return noised.input, np.where(noised.target == SPECIAL.pad, NONE, noised.target)


class Masked:
    """Texts in which some ids are hidden, others in every epoch: a dataset for a loader."""

    def __init__(self, texts: Stretches, masking: Masking, *, special: SpecialTokens, pin_memory: bool = False) -> None:
        self.texts, self.masking = texts, masking
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = texts.keys, texts.sizes
        self.source_lengths: IntArray = np.zeros(len(texts), np.uint32)
        self.target_lengths: IntArray = (texts.lengths + N_MARKS).astype(np.uint32)

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> LabelBatch:
        """See `Dataset`. What is hidden in a row depends on the step's seed and the row's number in it alone, so a row
        is the same whatever the number of ranks."""
        chosen = np.asarray(indices[rows], np.int64)
        noised = [
            self.masking(ids, generator(seed, int(row))) for ids, row in zip(self.texts.take(chosen), rows, strict=True)
        ]
        batch = collate_labels([a for a, _ in noised], [b for _, b in noised], chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch


def collate_labels(
    texts: Sequence[IntArray], labels: Sequence[IntArray] | IntArray, indices: IntArray, *, special: SpecialTokens
) -> LabelBatch:
    """Put the marks around the ids, and pad. `labels` are numbers, one for each text, or arrays, one for each id."""
    width = max((len(ids) + N_MARKS for ids in texts), default=1)
    ids = np.full((len(texts), width), special.pad, np.int64)
    mask = np.zeros(ids.shape, bool)
    each: Literal["text", "token"] = "text" if isinstance(labels, np.ndarray) and labels.ndim == 1 else "token"
    answers = np.asarray(labels, np.int64) if each == "text" else np.full(ids.shape, NONE, np.int64)
    for row, text in enumerate(texts):
        end = len(text) + 1
        ids[row, 0], ids[row, 1:end], ids[row, end] = special.start, text, special.end
        mask[row, : end + 1] = True
        if each == "token":
            answers[row, 1:end] = labels[row]
    return LabelBatch(
        ids=torch.from_numpy(ids),
        mask=torch.from_numpy(mask),
        labels=torch.from_numpy(answers),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )
