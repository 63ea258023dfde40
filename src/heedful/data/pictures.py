"""Prepared images as batches: a question about each picture, or about each patch of it."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from heedful.data.batching import IntArray, generator
from heedful.data.images import Pixels, flip, normalised, shift
from heedful.data.labelled import NONE

Ask = Callable[
    [int, np.random.Generator], IntArray
]  # (number of a picture, its random numbers) -> labels of its patches


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
        return int((self.labels != NONE).sum())

    def to(self, device: torch.device | str) -> "ImageBatch":
        return ImageBatch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def pin_memory(self) -> "ImageBatch":
        return ImageBatch(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def split(self, n_parts: int) -> list["ImageBatch"]:
        """The same rows as micro-batches; some without rows if there are not enough."""
        parts = [getattr(self, f.name).tensor_split(n_parts) for f in fields(self)]
        return [ImageBatch(*columns) for columns in zip(*parts, strict=True)]


@dataclass(frozen=True)
class Changes:
    """How pictures become the numbers that a model takes, and how they are changed at random before that."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = False
    shift: int = 0

    def __call__(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        """One picture (C, H, W), changed."""
        changed = flip(pixels[None], random) if self.flip else pixels[None]
        moved: Pixels = (shift(changed, random, by=self.shift) if self.shift else changed)[0]
        return moved


class Pictures:
    """A dataset for a loader; `ask` says what is wanted of a picture, one label or one for each patch."""

    def __init__(
        self, pixels: Pixels, ask: Ask, changes: Changes, *, key: str, n_asked: int = 1, pin_memory: bool = False
    ) -> None:
        self.pixels, self.ask, self.changes = pixels, ask, changes
        self.pin_memory = pin_memory
        self.keys, self.sizes = [key], [len(pixels)]
        self.source_lengths: IntArray = np.zeros(len(pixels), np.uint32)
        self.target_lengths: IntArray = np.full(len(pixels), n_asked, np.uint32)
        self._empty = np.zeros((0, *pixels.shape[1:]), np.uint8)

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> ImageBatch:
        """See `Dataset`. What happens to a row depends on the step's seed and the row's number in it alone."""
        chosen = np.asarray(indices[rows], np.int64)
        randoms = [generator(seed, int(row)) for row in rows]
        changed = [self.changes(self.pixels[i], random) for i, random in zip(chosen, randoms, strict=True)]
        labels = [self.ask(int(i), random) for i, random in zip(chosen, randoms, strict=True)]
        batch = ImageBatch(
            pixels=normalised(np.stack(changed) if changed else self._empty, self.changes.mean, self.changes.std),
            labels=torch.from_numpy(np.array(labels, np.int64)),
            indices=torch.from_numpy(chosen),
        )
        return batch.pin_memory() if self.pin_memory else batch
