"""Ensembles: several models generate one text, in each step from the mean of their probabilities.

Models that were trained separately make different mistakes, and their mean is right more often. The time is the sum of
theirs.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.decoding.search.step import Step, StepState
from heedful.errors import UserError


class EnsembleState:
    """The states of the models."""

    def __init__(self, states: list[StepState]) -> None:
        self.states = states
        self.attention: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        for state in self.states:
            state.reorder(rows)

    def keep(self, slots: Tensor) -> None:
        for state in self.states:
            state.keep(slots)


class EnsembleStep:
    """The step of several models with the same vocabulary."""

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

    def replace(self, state: EnsembleState, slots: Tensor, sources: Sequence[Sequence[int]]) -> None:
        for step, own in zip(self.steps, state.states, strict=True):
            step.replace(own, slots, sources)

    def __call__(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        pairs = zip(self.steps, state.states, strict=True)
        log_probs = torch.stack([step(tokens, own).log_softmax(dim=-1) for step, own in pairs])
        attention = [own.attention for own in state.states if own.attention is not None]
        longest = min((each.size(1) for each in attention), default=0)  # some drop padding that others keep
        state.attention = torch.stack([each[:, :longest] for each in attention]).mean(dim=0) if attention else None
        return log_probs.logsumexp(dim=0)  # of the sum instead of the mean: a search normalises all logits
