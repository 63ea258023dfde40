"""One step of writing: feed the newest token of each row, get the logits of the next. A search knows no more."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from heedful.models.seq2seq import Memory, Seq2Seq
from heedful.nn.cache import Cache


class State(Protocol):
    """What a model keeps between steps, a row for each hypothesis."""

    def keep_rows(self, rows: Tensor) -> "State":
        """The state of the given rows, in that order."""
        ...


S = TypeVar("S", bound=State)


class Step(Protocol[S]):
    def __call__(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """(N,) -> logits (N, V)."""
        ...


@dataclass(frozen=True)
class Seq2SeqState:
    memory: Memory
    cache: Cache

    def keep_rows(self, rows: Tensor) -> "Seq2SeqState":
        self.cache.reorder(rows)
        return Seq2SeqState(self.memory.rows(rows), self.cache)


class Seq2SeqStep:
    """The step of an encoder-decoder; `begin` reads the source, once."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model

    def begin(self, source: Tensor, source_mask: Tensor) -> Seq2SeqState:
        return Seq2SeqState(self.model.encode(source, source_mask), self.model.make_cache())

    def __call__(self, tokens: Tensor, state: Seq2SeqState) -> tuple[Tensor, Seq2SeqState]:
        logits = self.model.decode(tokens[:, None], state.memory, cache=state.cache)
        return logits[:, -1], state
