"""How well the model does on examples that it never trains on."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.data.batch_sampler import EpochPlan
from heedful.data.collate import TensorBatch
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.formatting import too_long
from heedful.training.data_preparation import Say
from heedful.training.events import LESS_IS_BETTER

B = TypeVar("B", bound=TensorBatch)


class ValidationSample(NamedTuple):
    """One example as a person may judge it: what was given, what was wanted, what the model said."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Validation:
    loss: float  # per target token, without smoothing
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name, beside the loss
    scores: tuple[Score, ...] = ()  # those for the card, with their signatures
    n_scored: int = 0  # examples behind these
    how: str = ""  # how the outputs were found: "greedy"
    samples: tuple[ValidationSample, ...] = ()

    def score(self, metric: str) -> float:
        """What the settings call better, as a number of which more is better."""
        value = {"loss": self.loss, **self.metrics}[metric]
        return -value if metric in LESS_IS_BETTER else value


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[torch.device]:
    """The model without dropout and without gradients, then in the mode it was in; its device."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        model.train(was_training)


def mean_loss(batches: Iterable[B], loss_of: Callable[[B], Tensor], device: torch.device) -> float:
    """Per target token; `loss_of` sums over a batch."""
    total, n_tokens = 0.0, 0
    for batch in batches:
        moved: B = batch.to(device)
        total += float(loss_of(moved))
        n_tokens += batch.n_target_tokens
    assert n_tokens, "a loss of nothing would be 0, the best of all: validators refuse such data"
    return total / n_tokens


def check_plan(plan: EpochPlan, n_all: int, unit: str, *, max_len: int, batch_tokens: int, say: Say) -> None:
    """What is in no batch is in no loss either: that is said, and refused where nothing else is left."""
    if not len(plan):
        raise UserError(
            f"all {n_all:,} {unit} for validation are longer than data.max_len = {max_len} allows (or "
            f"data.batch_tokens = {batch_tokens}), so there is no loss to judge by: raise it, or give shorter ones"
        )
    if n_left_out := len(plan.left_out):
        say(too_long(n_left_out, n_all, unit, max_len, what="the validation loss"))


def perplexity_of(loss: float) -> float:
    return math.exp(min(loss, 700.0))
