"""One step of writing: feed the newest token of each row, get the logits of the next. A search knows no more.

A batch holds sentences, and `width` rows for each: the hypotheses of one beam, side by side. They share what the
encoder said of their sentence; only their own past is copied when a search moves them.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from heedful.data.batch import pad_sources
from heedful.models.seq2seq import Memory, Seq2Seq
from heedful.nn.record import record_attention


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
    def refills(self) -> bool:
        """Whether `replace` works, so that sentences of different ages can stand in one batch."""

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> S:
        """Read the sources (ids without marks), once."""

    def replace(self, state: S, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        """Put new sentences in the places of finished ones."""

    def __call__(self, tokens: Tensor, state: S) -> Tensor:
        """(N,) -> logits (N, V)."""


class Seq2SeqState:
    def __init__(self, model: Seq2Seq, memory: Memory, width: int, records: list[Tensor] | None) -> None:
        self.model = model
        self.memory = memory
        self.records = records
        self.cache = model.make_cache()
        self.width = width
        self.attention: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        for layer in self.cache.layers:
            layer.past.reorder(rows)

    def keep(self, sentences: Tensor) -> None:
        self.memory = self.memory.rows(sentences)
        rows = rows_of(sentences, self.width)
        for layer in self.cache.layers:
            layer.past.reorder(rows)
            layer.memory.reorder(sentences)


class Seq2SeqStep:
    """The step of any encoder-decoder, through the model itself: the reference, for every variant."""

    refills = False  # the model's positions and patterns count from one common start

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.max_len = longest_target(model)

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> Seq2SeqState:
        source, mask = (x.to(self.device) for x in pad_sources(sources))
        model, records = self.model, None
        if attention:
            model, recorded = record_attention(model)
            records = recorded[f"decoder.layers.{len(model.decoder.layers) - 1}.cross_attention"]
        return Seq2SeqState(model, model.encode(source, mask), width, records)

    def replace(self, state: Seq2SeqState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError("all rows of the reference step are of one age")

    def __call__(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        logits = state.model.decode(tokens[:, None], state.memory, cache=state.cache)[:, -1]
        if state.records is not None:
            state.attention = state.records.pop().mean(dim=1).flatten(0, -2)  # (n, H, width, S) -> (N, S)
        return logits


def longest_target(model: Seq2Seq) -> int | None:
    """Learned positions end with their table; all others go on, further than training went."""
    return model.config.max_len if model.config.positions == "learned" else None


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """The rows of the given sentences."""
    return (sentences[:, None] * width + torch.arange(width, device=sentences.device)).flatten()
