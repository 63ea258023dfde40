"""One step of writing: feed the newest token of each row, get the logits of the next. A search knows no more.

A batch holds sentences, and `width` rows for each: the hypotheses of one beam, side by side. They share what the
encoder said of their sentence; only their own past is copied when a search moves them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from heedful.data.batch import pad_sources
from heedful.models.find import ENCODER_DECODERS, wrong_family
from heedful.models.folder import LoadedModel
from heedful.models.marks import MarksConfig
from heedful.models.memory import Memory
from heedful.nn.cache import Cache
from heedful.nn.record import record_attention


class Settings(Protocol):
    @property
    def marks(self) -> MarksConfig: ...


class EncoderDecoder(Protocol):
    """What every encoder-decoder has: it reads once, and then writes with what it keeps of the past."""

    @property
    def config(self) -> Settings: ...

    @property
    def longest(self) -> int | None:
        """The most tokens that it can write, if there is a limit."""

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory: ...

    def decode(self, target: Tensor, memory: Memory, *, cache: Cache | None = None) -> Tensor: ...

    def states(self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None) -> Tensor: ...

    @property
    def head(self) -> Callable[[Tensor], Tensor]:
        """From `states` to logits."""

    def make_cache(self) -> Cache: ...


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
    def marks(self) -> MarksConfig:
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


class Seq2SeqState:
    def __init__(self, model: EncoderDecoder, memory: Memory, width: int, records: list[Tensor] | None) -> None:
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

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.marks = model.config.marks
        self.device = device_of(model)
        self.max_len = model.longest

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> Seq2SeqState:
        opened = [self.marks.opened(ids) for ids in sources]
        source, mask = (x.to(self.device) for x in pad_sources(opened, special=self.marks.special))
        model, records = self.model, None
        if attention:
            twin, recorded = record_attention(_module(model))
            model, records = cast(EncoderDecoder, twin), list(recorded.items())[-1][1]
            assert list(recorded)[-1].endswith("cross_attention"), "the last attention reads the memory"
        return Seq2SeqState(model, model.encode(source, mask), width, records)

    def replace(self, state: Seq2SeqState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError("all rows of the reference step are of one age")

    def __call__(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        logits = state.model.decode(tokens[:, None], state.memory, cache=state.cache)[:, -1]
        if state.records is not None:
            looked = state.records[-1].mean(dim=1).flatten(0, -2)  # (n, H, width, S) -> (N, S)
            state.attention = looked[:, self.marks.n_before :]
            state.records.clear()
        return logits


def encoder_decoder(loaded: LoadedModel) -> EncoderDecoder:
    """The model of a folder, if it reads one text and writes another; else a UserError that says what runs it."""
    if loaded.family not in ENCODER_DECODERS:
        raise wrong_family(loaded.folder or "this model", loaded.family, *ENCODER_DECODERS)
    return cast(EncoderDecoder, loaded.model)


def device_of(model: EncoderDecoder) -> torch.device:
    return next(_module(model).parameters()).device


def _module(model: EncoderDecoder) -> nn.Module:
    assert isinstance(model, nn.Module)
    return model


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """The rows of the given sentences."""
    return (sentences[:, None] * width + torch.arange(width, device=sentences.device)).flatten()
