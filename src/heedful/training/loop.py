"""The training loop. Whatever happens in training, happens in `fit`, on one screen."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from heedful.data.batch import AnyBatch
from heedful.data.batching import derived_seed
from heedful.data.loader import LoaderState
from heedful.errors import UserError
from heedful.training.checkpoint import State
from heedful.training.distributed import World, any_rank, gradients_synced, sum_over_ranks, whole
from heedful.training.objectives import Objective
from heedful.training.optimiser import clip_gradients, set_rate
from heedful.training.settings import RunSettings


class Batches(Protocol):
    """The loader, as far as the loop knows it: each batch is this rank's part of one step."""

    @property
    def state(self) -> LoaderState: ...

    def __next__(self) -> AnyBatch: ...


class ModelWithObjective(nn.Module):
    """Batch in, loss out: one module, since DDP and FSDP act around a forward."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: AnyBatch, step: int) -> Tensor:
        return self.objective(self.model, batch, step)


@dataclass
class Training:
    """The parts of a run, put together by `run.py`; `fit` drives them."""

    settings: RunSettings
    world: World
    module: nn.Module  # ModelWithObjective, wrapped for many ranks
    optimiser: torch.optim.Optimizer
    max_grad_norm: float
    rate_at: Callable[[int], float]
    batches: Batches
    autocast: Callable[[], Any]
    after_update: Callable[[State], None]  # the running average of the weights, if there is one
    log: Callable[[State, "Progress"], None]
    validate: Callable[[State], bool]  # False: abandoned, because a signal came
    save: Callable[[State], None]
    asked_to_stop: Callable[[], str | None]  # a signal came
    warn: Callable[[str], None]
    accumulate: int = 1  # parts of a step; grows when memory does not suffice


@dataclass
class Progress:
    """Sums since the last line of the log; all ranks together when logged."""

    loss: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    grad_norm: float = 0.0
    rate: float = 0.0

    def add(self, *, loss: float, tokens: float, seconds: float, grad_norm: float, rate: float) -> None:
        self.loss += loss
        self.tokens += tokens
        self.seconds += seconds
        self.grad_norm, self.rate = grad_norm, rate  # the newest


def fit(training: Training, state: State) -> str:
    """Train until a reason to stop, and return it. Every pass begins between two steps, where a run can resume."""
    settings = training.settings
    progress, saved = Progress(), state.step
    while True:
        validated = needs_validation(state, settings) and training.validate(state)
        if validated or (state.step != saved and due(state.step, settings.save_every)):
            training.save(state)
            saved = state.step
        if (reason := reason_to_stop(training, state)) is not None:
            break
        take_step(training, state, progress)
        if due(state.step, settings.log_every):
            training.log(state, progress)
            progress = Progress()
    if state.step != saved:
        training.save(state)
    return reason


def take_step(training: Training, state: State, progress: Progress) -> None:
    """One update of the weights from one batch."""
    started = time.perf_counter()
    rate = training.rate_at(state.step)
    set_rate(training.optimiser, rate)

    batch = next(training.batches)
    n_asked = sum_over_ranks(training.world, batch.n_target_tokens)[0]
    n_tokens = max(1.0, n_asked)  # in texts of unknown words alone nothing can be hidden: a step that changes nothing
    loss = backward_through(training, batch, state.step, n_tokens)
    grad_norm = float(whole(clip_gradients(training.module.parameters(), training.max_grad_norm)))
    check_finite(training, batch, state.step, loss, grad_norm)
    training.optimiser.step()
    training.optimiser.zero_grad()

    state.step += 1
    state.loader = training.batches.state
    state.tokens += int(n_asked)
    training.after_update(state)
    seconds = time.perf_counter() - started
    state.seconds += seconds
    progress.add(loss=loss, tokens=n_tokens, seconds=seconds, grad_norm=grad_norm, rate=rate)


def backward_through(training: Training, batch: AnyBatch, step: int, n_tokens: float) -> float:
    """Gradients of the mean loss over the target tokens of the whole step; returns this rank's sum of losses.

    Out of memory: the step is cut into twice as many parts and begun again. The result is the same, only slower.
    """
    while True:
        # Random numbers are a function of seed, step and rank: nothing to restore, whatever happened before.
        torch.manual_seed(derived_seed(training.settings.seed, step, training.world.rank))
        try:
            return _backward_in_parts(training, batch, step, n_tokens)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Out of the except block, so that the failed pass and its tensors are gone.
        training.optimiser.zero_grad()
        if training.world.size > 1 or 2 * training.accumulate > max(1, len(batch)):
            raise UserError(
                f"step {step + 1}: out of memory with {training.accumulate} parts to a step. Lower data.batch_tokens "
                f"(now {int(n_tokens):,} target tokens in this step), or raise run.accumulate"
            )
        training.accumulate *= 2
        training.warn(f"step {step + 1}: out of memory; from now on a step is cut into {training.accumulate} parts")


def _backward_in_parts(training: Training, batch: AnyBatch, step: int, n_tokens: float) -> float:
    """Forward and backward through each part of the batch.

    A part's loss is a sum, divided by the tokens of all parts on all ranks: cutting a step into parts or ranks changes
    nothing. DDP and FSDP average over the ranks, hence the factor.
    """
    total = 0.0
    parts = batch.split(training.accumulate) if training.accumulate > 1 else (batch,)
    for number, part in enumerate(parts):
        with gradients_synced(training.module, last=number == len(parts) - 1):
            with training.autocast():
                loss = training.module(part.to(training.world.device), step)
            (loss * (training.world.size / n_tokens)).backward()
        total += loss.item()
    return total


def is_out_of_memory(error: BaseException) -> bool:
    """PyTorch has a class of its own for GPUs; for the CPU there are only the words."""
    words = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(word in str(error) for word in words)


def due(step: int, every: int) -> bool:
    return step % every == 0


def needs_validation(state: State, settings: RunSettings) -> bool:
    """Also true after a resume, when the validation of this step was abandoned or its score was never saved."""
    return state.step > 0 and due(state.step, settings.validate_every) and str(state.step) not in state.scores


def reason_to_stop(training: Training, state: State) -> str | None:
    """Why training ends here, the same on all ranks; None to go on."""
    settings = training.settings
    if state.step >= settings.steps:
        return f"all {settings.steps:,} steps are done"
    if settings.patience is not None and state.waited >= settings.patience:
        return f"no better score in {settings.patience} validations (patience)"
    asked = training.asked_to_stop()
    out_of_time = settings.minutes is not None and state.seconds >= settings.minutes * 60
    if training.world.size > 1:  # clocks and signals differ from rank to rank
        out_of_time, was_asked = any_rank(training.world, out_of_time), any_rank(training.world, asked is not None)
        asked = (asked or "another rank was stopped") if was_asked else None
    if asked is not None:
        return asked
    return f"the {settings.minutes:g} minutes are over" if out_of_time else None


class NotFinite(UserError):
    """The loss or the gradient is not a number; the weights are still those of the step before."""

    def __init__(self, message: str, *, step: int, examples: list[int]) -> None:
        super().__init__(message)
        self.step = step
        self.examples = examples  # of this rank's part of the batch


def check_finite(training: Training, batch: AnyBatch, step: int, loss: float, grad_norm: float) -> None:
    """Stop before the update, on all ranks alike."""
    numbers = torch.tensor([loss, grad_norm])
    if any_rank(training.world, not bool(torch.isfinite(numbers).all())):
        raise NotFinite(
            f"step {step + 1}: the loss ({loss}) or the length of the gradient ({grad_norm}) is not finite on at least "
            "one rank. The update was not made; not-finite.json in the run's folder lists the examples of the batch. "
            "A lower optimiser.lr, a longer schedule.warmup_steps or run.precision=float32 usually helps",
            step=step + 1,
            examples=sorted(batch.indices.tolist()),
        )
