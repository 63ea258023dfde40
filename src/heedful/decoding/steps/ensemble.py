"""Several models that write one text together, an ensemble: at every step the mean of their probabilities.

They were trained apart, so each is wrong in its own way, and what most of them say is more often right. It takes as
long as all of them one after the other.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.decoding.search.step import State, Step
from heedful.errors import UserError


class EnsembleState:
    """A state for each of the models."""

    def __init__(self, states: list[State]) -> None:
        self.states = states
        self.attention: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        for state in self.states:
            state.reorder(rows)

    def keep(self, sentences: Tensor) -> None:
        for state in self.states:
            state.keep(sentences)


class EnsembleStep:
    """The step of models with one vocabulary."""

    def __init__(self, steps: Sequence[Step[Any]]) -> None:
        if any(step.special_ids != steps[0].special_ids for step in steps):
            raise UserError("these models cannot translate together: their special ids differ")
        self.steps = steps
        self.special_ids = steps[0].special_ids
        self.device = steps[0].device
        self.max_len = min((step.max_len for step in steps if step.max_len is not None), default=None)
        self.refills = all(step.refills for step in steps)

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> EnsembleState:
        return EnsembleState([step.begin(sources, width, attention=attention) for step in self.steps])

    def replace(self, state: EnsembleState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        for step, own in zip(self.steps, state.states, strict=True):
            step.replace(own, places, sources)

    def __call__(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        pairs = zip(self.steps, state.states, strict=True)
        said = torch.stack([step(tokens, own).log_softmax(dim=-1) for step, own in pairs])
        looked = [own.attention for own in state.states if own.attention is not None]
        longest = min((each.size(1) for each in looked), default=0)  # some drop padding that others keep
        state.attention = torch.stack([each[:, :longest] for each in looked]).mean(dim=0) if looked else None
        return said.logsumexp(dim=0)  # the logarithm of the sum: a search makes probabilities of it, as of all logits
