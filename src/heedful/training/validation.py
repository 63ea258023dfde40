"""How well a model does on examples that it is never trained on: the frame of every task's validation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.data.batch_sampler import EpochPlan, plan_batches
from heedful.data.collate import TensorBatch
from heedful.data.seeding import IntArray
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.formatting import too_long
from heedful.training.events import LESS_IS_BETTER, Notify
from heedful.training.settings import DataSettings

B = TypeVar("B", bound=TensorBatch)
N_SAMPLES = 3  # examples that an event shows


class ValidationSample(NamedTuple):
    """One example for people to read: input, reference and the model's output."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Validation:
    """The result of one validation."""

    loss: float  # per target token, without label smoothing
    metrics: Mapping[str, float] = field(default_factory=dict)  # beside the loss, by name
    scores: tuple[Score, ...] = ()  # for the model card, with their signatures
    n_scored: int = 0  # examples behind the scores
    how: str = ""  # how the outputs were found, for example "greedy"
    samples: tuple[ValidationSample, ...] = ()

    def score(self, metric: str) -> float:
        """Return a metric as a score, where more is better: a loss becomes negative.

        >>> Validation(loss=2.5, metrics={"accuracy": 80.0}).score("loss")
        -2.5
        """
        value = {"loss": self.loss, **self.metrics}[metric]
        return -value if metric in LESS_IS_BETTER else value


class Validator(ABC, Generic[B]):
    """Validates a model on batches that stay the same for the whole run.

    A task adds two methods: `score_batch` computes the loss of a batch, and what else it needs of it; `summarize` makes
    the result from all of these.
    """

    def __init__(self, batches: Sequence[B]) -> None:
        self.batches = batches

    def run(self, model: Any) -> Validation:
        """Validate the model with dropout and gradients disabled, then restore its mode."""
        with evaluation_mode(model) as device:
            total, n_tokens, outputs = 0.0, 0, []
            for batch in self.batches:
                loss, output = self.score_batch(model, batch.to(device))
                total += float(loss)
                n_tokens += batch.n_target_tokens
                outputs.append(output)
            assert n_tokens, "validators refuse data without targets: its loss of 0 would be the best of all"
            return self.summarize(model, total / n_tokens, outputs)

    @abstractmethod
    def score_batch(self, model: Any, batch: B) -> tuple[Tensor, Any]:
        """Return the loss of a batch, summed over its targets, and whatever `summarize` needs of it."""

    @abstractmethod
    def summarize(self, model: Any, loss: float, outputs: list[Any]) -> Validation:
        """Make the result from the mean loss and the second values of `score_batch`, batch after batch."""


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[torch.device]:
    """Switch off dropout and gradients within the block; yield the model's device."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        model.train(was_training)


def plan_validation(
    source_lengths: IntArray,
    target_lengths: IntArray,
    data: DataSettings,
    unit: str,
    notify: Notify,
    *,
    max_len: int | None = None,
) -> EpochPlan:
    """Plan the batches of the validation data, the same in every validation.

    Examples that are too long for any batch are reported; if there are no others, a UserError is raised.
    """
    plan = plan_batches(
        source_lengths, target_lengths, batch_tokens=data.batch_tokens, max_len=max_len, seed=0, epoch=0
    )
    n_all, n_left_out = len(source_lengths), len(plan.left_out)
    if not len(plan):
        raise UserError(
            f"all {n_all:,} {unit} for validation are longer than data.max_len = {data.max_len} allows (or "
            f"data.batch_tokens = {data.batch_tokens}), so there is no validation loss: raise it, or give shorter ones"
        )
    if n_left_out:
        notify(too_long(n_left_out, n_all, unit, data.max_len, what="the validation loss"))
    return plan


def perplexity_of(loss: float) -> float:
    """Return exp(loss), bounded, since JSON has no infinity.

    >>> round(perplexity_of(math.log(20.0)))
    20
    """
    return math.exp(min(loss, 700.0))
