"""Batches: lists of token ids, labels or images as padded tensors, and the functions that build them.

A batch is a frozen dataclass of tensors with one row per example. It may have no rows: when a training step has fewer
examples than ranks, some ranks get an empty batch, and still take part in the step with a loss of zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.data.batch_sampler import split_rows
from heedful.data.seeding import IntArray
from heedful.text import SpecialIds

IGNORE_INDEX = -1  # the label of positions without loss
N_SPECIAL = 2  # special tokens around the ids of an encoder's row: BOS and EOS


class TensorBatch:
    """Base of all batches, each a frozen dataclass whose fields are tensors with one row per example."""

    indices: Tensor  # (B,) int64: the indices of the examples in their dataset

    def __len__(self) -> int:
        return self.indices.size(0)

    @property
    def n_target_tokens(self) -> int:
        """The number of predictions that are scored: a sum of losses is divided by it."""
        raise NotImplementedError

    def to(self, device: torch.device | str) -> Self:
        """Copy the tensors to a device."""
        return type(self)(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()})

    def pin_memory(self) -> Self:
        """Copy the tensors to page-locked memory, from which a copy to a GPU does not block."""
        return type(self)(**{name: tensor.pin_memory() for name, tensor in vars(self).items()})

    def split(self, n_parts: int) -> list[Self]:
        """Split the rows into `n_parts` micro-batches; if there are too few rows, the last ones are empty."""
        parts = {name: tensor.tensor_split(n_parts) for name, tensor in vars(self).items()}
        return [type(self)(**{name: tensors[i] for name, tensors in parts.items()}) for i in range(n_parts)]


@dataclass(frozen=True)
class Batch(TensorBatch):
    """Pairs for an encoder-decoder with teacher forcing: position t reads `target_in[t]` and predicts `target_out[t]`.

    An empty batch has tensors of shape (0, 1).
    """

    source: Tensor  # (B, S) int64: ids, EOS
    source_mask: Tensor  # (B, S) bool, True = not padding
    target_in: Tensor  # (B, T) int64: BOS, ids
    target_out: Tensor  # (B, T) int64: ids, EOS
    target_mask: Tensor  # (B, T) bool, True = not padding
    indices: Tensor  # (B,) int64

    @property
    def n_source_tokens(self) -> int:
        """The number of source tokens, padding not counted."""
        return int(self.source_mask.sum())

    @property
    def n_target_tokens(self) -> int:
        return int(self.target_mask.sum())

    def split(self, n_parts: int) -> list[Self]:
        """Split the rows into micro-batches of like lengths and about equal tokens, each padded only to its longest."""
        source_lengths = self.source_mask.sum(dim=1).cpu().numpy()
        target_lengths = self.target_mask.sum(dim=1).cpu().numpy()
        parts = split_rows(source_lengths, target_lengths, n_parts)
        return [self._rows(part, source_lengths[part], target_lengths[part]) for part in parts]

    def _rows(self, rows: IntArray, source_lengths: IntArray, target_lengths: IntArray) -> Self:
        chosen = torch.from_numpy(rows.astype(np.int64)).to(self.indices.device)
        source, target = int(source_lengths.max(initial=1)), int(target_lengths.max(initial=1))
        return type(self)(
            source=self.source[chosen, :source],
            source_mask=self.source_mask[chosen, :source],
            target_in=self.target_in[chosen, :target],
            target_out=self.target_out[chosen, :target],
            target_mask=self.target_mask[chosen, :target],
            indices=self.indices[chosen],
        )


@dataclass(frozen=True)
class LabelBatch(TensorBatch):
    """Texts for an encoder, with a label for each text or for each token."""

    ids: Tensor  # (B, S) int64: BOS, ids, EOS
    mask: Tensor  # (B, S) bool, True = not padding
    labels: Tensor  # (B,) or (B, S) int64, IGNORE_INDEX where there is no label
    indices: Tensor  # (B,) int64

    @property
    def n_target_tokens(self) -> int:
        return int((self.labels != IGNORE_INDEX).sum())


@dataclass(frozen=True)
class LmBatch(TensorBatch):
    """Rows of running text for a decoder. A mask made of `documents` keeps the documents of a row apart."""

    target_in: Tensor  # (B, T) int64
    target_out: Tensor  # (B, T) int64
    target_mask: Tensor  # (B, T) bool, True = not padding, which only the last row of a corpus has
    documents: Tensor  # (B, T) int64: the number of each token's document in its corpus, -1 for padding
    positions: Tensor  # (B, T) int64: restarts at 0 in each row and at each document
    indices: Tensor  # (B,) int64: the indices of the rows in the dataset

    @property
    def n_target_tokens(self) -> int:
        return int(self.target_mask.sum())


@dataclass(frozen=True)
class ImageBatch(TensorBatch):
    """Images with a label for each image or for each patch."""

    pixels: Tensor  # (B, C, H, W) float32, normalised
    labels: Tensor  # (B,) or (B, P) int64, IGNORE_INDEX where there is no label
    indices: Tensor  # (B,) int64

    @property
    def n_target_tokens(self) -> int:
        return int((self.labels != IGNORE_INDEX).sum())


def collate_pairs(
    sources: Sequence[IntArray], targets: Sequence[IntArray], indices: IntArray, *, special_ids: SpecialIds
) -> Batch:
    """Add the special tokens to ids without any, and pad: source + EOS; start token + target; target + EOS."""
    source, source_mask = pad_sources(sources, special_ids=special_ids)
    target_mask = _mask([len(ids) + 1 for ids in targets])
    target_in = np.full(target_mask.shape, special_ids.pad_id, np.int64)
    target_out = target_in.copy()
    for row, ids in enumerate(targets):
        target_in[row, 0] = special_ids.start_id
        target_in[row, 1 : len(ids) + 1] = ids
        target_out[row, : len(ids)] = ids
        target_out[row, len(ids)] = special_ids.eos_id
    return Batch(
        source=source,
        source_mask=source_mask,
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_mask=torch.from_numpy(target_mask),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )


def pad_sources(sources: Sequence[IntArray | Sequence[int]], *, special_ids: SpecialIds) -> tuple[Tensor, Tensor]:
    """Make the encoder's input of training and translation: each row is ids + EOS (B, S), and its mask (B, S).

    EOS tells the encoder where the text ends, and keeps an empty text from being a row without any token.
    """
    mask = _mask([len(ids) + 1 for ids in sources])
    source = np.full(mask.shape, special_ids.pad_id, np.int64)
    for row, ids in enumerate(sources):
        source[row, : len(ids)] = ids
        source[row, len(ids)] = special_ids.eos_id
    return torch.from_numpy(source), torch.from_numpy(mask)


def _mask(lengths: Sequence[int]) -> npt.NDArray[np.bool_]:
    width = max(lengths, default=1)  # (0, 1) for no rows: models slice positions by the width
    mask: npt.NDArray[np.bool_] = np.arange(width) < np.asarray(lengths, np.int64).reshape(-1, 1)
    return mask


def collate_labels(
    texts: Sequence[IntArray], labels: Sequence[IntArray] | IntArray, indices: IntArray, *, special_ids: SpecialIds
) -> LabelBatch:
    """Put BOS and EOS around the ids of each text, and pad.

    `labels` is one array with a label for each text, or a sequence of arrays with a label for each id.
    """
    mask = _mask([len(ids) + N_SPECIAL for ids in texts])
    ids = np.full(mask.shape, special_ids.pad_id, np.int64)
    for row, text in enumerate(texts):
        end = len(text) + 1
        ids[row, 0], ids[row, 1:end], ids[row, end] = special_ids.bos_id, text, special_ids.eos_id
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        padded = np.asarray(labels, np.int64)
    else:
        padded = np.full(ids.shape, IGNORE_INDEX, np.int64)
        for row, of_ids in enumerate(labels):
            padded[row, 1 : len(of_ids) + 1] = of_ids
    return LabelBatch(
        ids=torch.from_numpy(ids),
        mask=torch.from_numpy(mask),
        labels=torch.from_numpy(padded),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )


def collate_windows(windows: IntArray, indices: IntArray, mask: npt.NDArray[np.bool_] | None = None) -> LmBatch:
    """Shift windows of T + 1 ids (B, T + 1): the first T are read, the last T predicted. `mask` (B, T) is True for ids.

    All ids of a window count as one document.
    """
    ids = torch.from_numpy(windows)
    shape = (len(windows), windows.shape[1] - 1)
    target_mask = torch.ones(shape, dtype=torch.bool) if mask is None else torch.from_numpy(mask)
    return LmBatch(
        target_in=ids[:, :-1],
        target_out=ids[:, 1:],
        target_mask=target_mask,
        documents=torch.where(target_mask, 0, -1),
        positions=torch.arange(shape[1]).expand(shape),
        indices=torch.from_numpy(np.asarray(indices, np.int64)),
    )
