"""One step of writing: feed the newest token of each row, get the logits of the next. A search knows no more.

A batch holds sentences, and `width` rows for each: the hypotheses of one beam, side by side. They share what the
encoder said of their sentence; only their own past is copied when a search moves them.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from heedful.text.special_ids import SpecialIds


class State(Protocol):
    """What a model keeps between steps; row r belongs to sentence r // width."""

    attention: (
        Tensor | None
    )  # (N, S) after a step, if it was asked for: the last layer's cross-attention, heads averaged

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what was row rows[i], of the same sentence."""

    def keep(self, sentences: Tensor) -> None:
        """Only the given sentences go on, in that order."""


S = TypeVar("S", bound=State)


class Step(Protocol[S]):
    @property
    def device(self) -> torch.device:
        """Where tokens must be."""

    @property
    def max_len(self) -> int | None:
        """The most tokens that it can write, if there is a limit."""

    @property
    def special_ids(self) -> SpecialIds:
        """The model's ids that are not text."""

    @property
    def refills(self) -> bool:
        """Whether `replace` works, so that sentences of different ages can stand in one batch."""

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> S:
        """Read the sources (ids without marks), once."""

    def replace(self, state: S, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        """Put new sentences in the places of finished ones."""

    def __call__(self, tokens: Tensor, state: S) -> Tensor:
        """(N,) -> logits (N, V)."""


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """The rows of the given sentences."""
    return (sentences[:, None] * width + torch.arange(width, device=sentences.device)).flatten()
