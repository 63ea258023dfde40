"""The protocol of a decoding step: the newest token of each row in, the logits of its next token out.

A batch has B slots with one request each, and `width` rows for each slot: the hypotheses of a beam, side by side, or
the samples. N = B x width. The rows of a slot share what the encoder computed of the source; each has its own past.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from heedful.text.special_ids import SpecialIds


class StepState(Protocol):
    """What a model keeps between steps; row r belongs to slot r // width."""

    attention: Tensor | None  # (N, S) after a step, if requested: the last layer's cross-attention, averaged over heads

    def reorder(self, rows: Tensor) -> None:
        """Let row i continue what row rows[i], of the same slot, has been."""

    def keep(self, slots: Tensor) -> None:
        """Drop all slots but the given ones, which are then in the given order."""


S = TypeVar("S", bound=StepState)


class Step(Protocol[S]):
    """A decoding step of a model."""

    @property
    def device(self) -> torch.device:
        """The device for the tokens."""

    @property
    def max_len(self) -> int | None:
        """The most tokens that the model can generate; None: there is no limit."""

    @property
    def special_ids(self) -> SpecialIds: ...

    @property
    def refills(self) -> bool:
        """Whether `replace` works: whether requests of different ages can share a batch."""

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> S:
        """Read the sources (ids without special tokens), and return the state for a batch of them."""

    def replace(self, state: S, slots: Tensor, sources: Sequence[Sequence[int]]) -> None:
        """Put new requests into the slots of finished ones."""

    def __call__(self, tokens: Tensor, state: S) -> Tensor:
        """Feed the newest token of each row, (N,) -> logits (N, V)."""


def rows_of(slots: Tensor, width: int) -> Tensor:
    """Return the rows of the given slots."""
    return (slots[:, None] * width + torch.arange(width, device=slots.device)).flatten()
