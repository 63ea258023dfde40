"""What one forward eats: rows of ids, padded to one width, with masks that say which ids are real."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.data.batch_sampler import split_rows
from heedful.data.seeding import IntArray
from heedful.text import SPECIAL, SpecialTokens


class AnyBatch(Protocol):
    """What a training loop knows of a batch, whatever is in it: its size, its examples, how to cut and move it."""

    @property
    def indices(self) -> Tensor: ...  # (B,) int64: example numbers

    @property
    def n_target_tokens(self) -> int: ...  # what a sum of losses is divided by

    def __len__(self) -> int: ...

    def to(self, device: torch.device | str) -> "AnyBatch": ...

    def pin_memory(self) -> "AnyBatch": ...

    def split(self, n_parts: int) -> Sequence["AnyBatch"]: ...


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, teacher-forced: position t reads `target_in[t]` and must say `target_out[t]`.

    A batch may have no rows: a rank gets one when a step has fewer rows than ranks. Its tensors are (0, 1), its counts
    0; the rank still takes part in the step, with a loss of zero.
    """

    source: Tensor  # (B, S) int64: ids, end
    source_mask: Tensor  # (B, S) bool, True = real
    target_in: Tensor  # (B, T) int64: start, ids
    target_out: Tensor  # (B, T) int64: ids, end
    target_mask: Tensor  # (B, T) bool, True = real
    indices: Tensor  # (B,) int64: example numbers in the corpus

    def __len__(self) -> int:
        return self.indices.size(0)

    @property
    def n_source_tokens(self) -> int:
        return int(self.source_mask.sum())

    @property
    def n_target_tokens(self) -> int:
        return int(self.target_mask.sum())

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "Batch":
        """The same in page-locked memory, from where a copy to a GPU does not block."""
        return Batch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["Batch"]:
        """The same rows as micro-batches, each only as wide as it must be; the last are empty if rows are few."""
        source_lengths = self.source_mask.sum(dim=1).cpu().numpy()
        target_lengths = self.target_mask.sum(dim=1).cpu().numpy()
        parts = split_rows(source_lengths, target_lengths, n_parts)
        return [self._rows(part, source_lengths[part], target_lengths[part]) for part in parts]

    def _rows(self, rows: IntArray, source_lengths: IntArray, target_lengths: IntArray) -> "Batch":
        chosen = torch.from_numpy(rows.astype(np.int64)).to(self.indices.device)
        source, target = int(source_lengths.max(initial=1)), int(target_lengths.max(initial=1))
        return Batch(
            source=self.source[chosen, :source],
            source_mask=self.source_mask[chosen, :source],
            target_in=self.target_in[chosen, :target],
            target_out=self.target_out[chosen, :target],
            target_mask=self.target_mask[chosen, :target],
            indices=self.indices[chosen],
        )


def collate(
    sources: Sequence[IntArray], targets: Sequence[IntArray], indices: IntArray, *, special: SpecialTokens = SPECIAL
) -> Batch:
    """Put the marks around the ids (which have none), and pad: source + end; start + target; target + end."""
    source, source_mask = pad_sources(sources, special=special)
    target_mask = _mask([len(ids) + 1 for ids in targets])
    target_in = np.full(target_mask.shape, special.pad, np.int64)
    target_out = target_in.copy()
    for row, ids in enumerate(targets):
        target_in[row, 0] = special.start
        target_in[row, 1 : len(ids) + 1] = ids
        target_out[row, : len(ids)] = ids
        target_out[row, len(ids)] = special.end
    return Batch(
        source=source,
        source_mask=source_mask,
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_mask=torch.from_numpy(target_mask),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )


def pad_sources(
    sources: Sequence[IntArray | Sequence[int]], *, special: SpecialTokens = SPECIAL
) -> tuple[Tensor, Tensor]:
    """The encoder's input and its mask, for training and translating alike: each row is ids + end (B, S).

    The end mark tells the encoder where the text stops, and keeps an empty text from being a row without any token.
    """
    mask = _mask([len(ids) + 1 for ids in sources])
    source = np.full(mask.shape, special.pad, np.int64)
    for row, ids in enumerate(sources):
        source[row, : len(ids)] = ids
        source[row, len(ids)] = special.end
    return torch.from_numpy(source), torch.from_numpy(mask)


def _mask(lengths: Sequence[int]) -> npt.NDArray[np.bool_]:
    width = max(lengths, default=1)  # (0, 1) for no rows: models slice positions by the width
    mask: npt.NDArray[np.bool_] = np.arange(width) < np.asarray(lengths, np.int64).reshape(-1, 1)
    return mask


IGNORE_INDEX = -1
N_SPECIAL = 2  # start and end


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
        return int((self.labels != IGNORE_INDEX).sum())

    def to(self, device: torch.device | str) -> "LabelBatch":
        return LabelBatch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "LabelBatch":
        return LabelBatch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["LabelBatch"]:
        """The same rows as micro-batches; some without rows if there are not enough."""
        parts = [getattr(self, f.name).tensor_split(n_parts) for f in fields(self)]
        return [LabelBatch(*columns) for columns in zip(*parts, strict=True)]


def collate_labels(
    texts: Sequence[IntArray], labels: Sequence[IntArray] | IntArray, indices: IntArray, *, special: SpecialTokens
) -> LabelBatch:
    """Put the marks around the ids, and pad. `labels` are numbers, one for each text, or arrays, one for each id."""
    width = max((len(ids) + N_SPECIAL for ids in texts), default=1)
    ids = np.full((len(texts), width), special.pad, np.int64)
    mask = np.zeros(ids.shape, bool)
    each: Literal["text", "token"] = "text" if isinstance(labels, np.ndarray) and labels.ndim == 1 else "token"
    answers = np.asarray(labels, np.int64) if each == "text" else np.full(ids.shape, IGNORE_INDEX, np.int64)
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


@dataclass(frozen=True)
class LmBatch:
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

    def to(self, device: torch.device | str) -> "LmBatch":
        return LmBatch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "LmBatch":
        return LmBatch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["LmBatch"]:
        """The same rows as micro-batches; some without rows if there are not enough."""
        parts = [getattr(self, f.name).tensor_split(n_parts) for f in fields(self)]
        return [LmBatch(*columns) for columns in zip(*parts, strict=True)]


def window_batch(columns: IntArray, indices: IntArray, real: IntArray | None = None) -> LmBatch:
    """Rows of length + 1 ids: all but the last are read, all but the first are asked for."""
    ids = torch.from_numpy(columns)
    shape = (len(columns), columns.shape[1] - 1)
    mask = torch.ones(shape, dtype=torch.bool) if real is None else torch.from_numpy(real)
    return LmBatch(
        target_in=ids[:, :-1],
        target_out=ids[:, 1:],
        target_mask=mask,
        documents=torch.where(mask, 0, -1),
        positions=torch.arange(shape[1]).expand(shape),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )


@dataclass(frozen=True)
class ImageBatch:
    """Pictures and what is asked of them. May have no rows, as `Batch`."""

    pixels: Tensor  # (B, C, H, W) float32, around zero
    labels: Tensor  # (B,) int64: labels of pictures; or (B, P): of patches, NONE where nothing is asked
    indices: Tensor  # (B,) int64: numbers of the pictures

    def __len__(self) -> int:
        return self.indices.size(0)

    @property
    def n_target_tokens(self) -> int:
        return int((self.labels != IGNORE_INDEX).sum())

    def to(self, device: torch.device | str) -> "ImageBatch":
        return ImageBatch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "ImageBatch":
        return ImageBatch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["ImageBatch"]:
        """The same rows as micro-batches; some without rows if there are not enough."""
        parts = [getattr(self, f.name).tensor_split(n_parts) for f in fields(self)]
        return [ImageBatch(*columns) for columns in zip(*parts, strict=True)]
