"""The training loop. Whatever happens in training, happens in `fit`, on one screen.

What the loop calls back: logging, validating, saving, and what a run leaves when it is done.

The parts of a run, put together: at its beginning, or as a checkpoint left it.
"""

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from heedful.data.collate import TensorBatch
from heedful.data.loader import Loader, LoaderState
from heedful.data.seeding import derived_seed
from heedful.errors import UserError
from heedful.formatting import too_long
from heedful.models.model_io import LoadedModel, Model, save_model
from heedful.training.auxiliary_losses import auxiliary_heads
from heedful.training.checkpoint import (
    Checkpoint,
    State,
    generator_tensors,
    list_checkpoints,
    load_checkpoint,
    load_generator_tensors,
    load_model_tensors,
    load_optimiser_tensors,
    model_tensors,
    optimiser_tensors,
    prune,
    refuse_other_shapes,
    save_checkpoint,
)
from heedful.training.distributed import (
    World,
    any_rank,
    barrier,
    broadcast_from_rank0,
    full_tensor,
    gradients_synced,
    sum_over_ranks,
    wrap,
)
from heedful.training.finetuning import freeze, load_matching_weights, unfreeze_layers
from heedful.training.model_card import describe_model
from heedful.training.objectives import Objective
from heedful.training.optim import clip_gradients, learning_rate, make_optimiser, peak_rate, set_rate
from heedful.training.run_config import NAME, RunRecord
from heedful.training.settings import RunSettings, Settings
from heedful.training.signals import Abandoned, StopRequests
from heedful.training.tasks.base import PreparedTask, Validator
from heedful.training.tasks.registry import metric_of, task_of
from heedful.training.validation import Validation


class Batches(Protocol):
    """The loader, as far as the loop knows it: each batch is this rank's part of one step."""

    @property
    def state(self) -> LoaderState: ...

    def __next__(self) -> TensorBatch: ...

    def trial_batches(self) -> tuple[TensorBatch, list[TensorBatch]]: ...


class ModelWithObjective(nn.Module):
    """Batch in, loss out: one module, since DDP and FSDP act around a forward."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: TensorBatch, step: int) -> Tensor:
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
    micro_batches: int = 1  # parts of a step; grows when memory does not suffice


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
    grad_norm = float(full_tensor(clip_gradients(training.module.parameters(), training.max_grad_norm)))
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


def backward_through(training: Training, batch: TensorBatch, step: int, n_tokens: float) -> float:
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
        if training.world.size > 1 or 2 * training.micro_batches > max(1, len(batch)):
            raise UserError(
                f"step {step + 1}: out of memory with {training.micro_batches} micro-batches. Lower data.batch_tokens "
                f"(now {int(n_tokens):,} target tokens in this step), or raise run.micro_batches"
            )
        training.micro_batches *= 2
        training.warn(f"step {step + 1}: out of memory; from now on a step is cut into {training.micro_batches} parts")


def _backward_in_parts(training: Training, batch: TensorBatch, step: int, n_tokens: float) -> float:
    """Forward and backward through each part of the batch.

    A part's loss is a sum, divided by the tokens of all parts on all ranks: cutting a step into parts or ranks changes
    nothing. DDP and FSDP average over the ranks, hence the factor.
    """
    total = 0.0
    parts = batch.split(training.micro_batches) if training.micro_batches > 1 else (batch,)
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
    if settings.patience is not None and state.validations_since_best >= settings.patience:
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


def check_finite(training: Training, batch: TensorBatch, step: int, loss: float, grad_norm: float) -> None:
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


Emit = Callable[..., None]  # (kind of event, **values)


@dataclass
class Session:
    """Everything that the callbacks of `fit` need. Rank 0 judges, writes and speaks; the others only take part."""

    folder: Path
    record: RunRecord
    world: World
    model: Model
    lesson: PreparedTask
    validator: Validator | None  # of rank 0
    ema: dict[str, Tensor]  # the running average of the weights, empty when there is none
    emit: Emit
    requests: StopRequests
    training: Training = field(init=False)  # set last: the loop calls the session, and the session reads the loop
    last_said: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.record.settings

    @property
    def metric(self) -> str:
        """What "better" means."""
        return metric_of(self.settings)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def log(self, state: State, progress: Progress) -> None:
        loss = sum_over_ranks(self.world, progress.loss)[0]
        speed = progress.tokens / progress.seconds
        steps_left = self.settings.run.steps - state.step
        seconds_left = steps_left * state.seconds / max(1, state.step)
        if self.settings.run.minutes is not None:
            seconds_left = min(seconds_left, max(0.0, self.settings.run.minutes * 60 - state.seconds))
        self.emit(
            "step",
            step=state.step,
            steps=self.settings.run.steps,
            loss=loss / progress.tokens,
            tokens_per_second=speed,
            lr=progress.rate,
            grad_norm=progress.grad_norm,
            epoch=state.loader.epoch,
            seconds=state.seconds,
            seconds_left=seconds_left,
            tokens=state.tokens,
        )

    def validate(self, state: State) -> bool:
        """Score the model; keep the best one as a model folder; count how long none was better. False: abandoned."""
        started = time.perf_counter()
        judged, score = self.model_to_judge(), None
        if judged is not None and self.validator is not None:
            with contextlib.suppress(Abandoned), self.requests.abandoning():
                result = self.validator(judged)
                score = result.score(self.metric)
        best = state.scores.get(str(state.best_step))
        is_best = score is not None and (best is None or score > best)
        if judged is not None and is_best:
            self._save_model("best", judged, state, result, weights=f"the best on validation, at step {state.step:,}")
        score = broadcast_from_rank0(self.world, score)
        if score is None:
            return False
        is_best = best is None or score > best
        state.validations_since_best = 0 if is_best else state.validations_since_best + 1
        state.scores[str(state.step)] = score
        if judged is not None:
            self._tell(state, result, is_best, time.perf_counter() - started)
        return True

    def _tell(self, state: State, result: Validation, is_best: bool, seconds: float) -> None:
        before = self.last_said or itertools.repeat(None)
        samples = [
            {"source": said.source, "reference": said.reference, "hypothesis": said.hypothesis, "before": last}
            for said, last in zip(result.samples, before, strict=False)
        ]
        self.last_said = [said.hypothesis for said in result.samples]
        plain = {name: result.metrics[name] for name in ("bleu", "chrf") if name in result.metrics}
        self.emit(
            "validation",
            step=state.step,
            loss=result.loss,
            perplexity=result.metrics.get("perplexity"),
            **plain,
            metrics={name: value for name, value in result.metrics.items() if name not in ("perplexity", *plain)},
            score=state.scores[str(state.step)],
            best=is_best,
            best_score=state.scores[str(state.best_step)],
            best_step=state.best_step,
            validations_since_best=state.validations_since_best,
            patience=self.settings.run.patience,
            seconds=seconds,
            samples=samples,
        )

    def save(self, state: State) -> None:
        """A checkpoint; rank 0 writes, after all ranks have given their parts."""
        started = time.perf_counter()
        model, optimiser = model_tensors(self.model), optimiser_tensors(self.model, self.training.optimiser)
        if self.world.speaks:
            folder = save_checkpoint(
                self.checkpoints,
                state,
                model=model,
                optimiser=optimiser,
                generators=generator_tensors(),
                ema=self.ema,
            )
            best = sorted(state.scores, key=lambda step: -state.scores[step])[: self.settings.run.keep_best]
            keep = max(self.settings.run.keep_last, self.settings.run.average)
            prune(self.checkpoints, keep_last=keep, best=[int(step) for step in best])
            size = sum(path.stat().st_size for path in folder.iterdir())
            self.emit("saved", step=state.step, folder=str(folder), bytes=size, seconds=time.perf_counter() - started)
        barrier(self.world)

    def model_to_judge(self) -> Model | None:
        """The model as validation sees it, on rank 0: itself, or a copy with averaged or gathered weights, and without
        what serves in training alone.
        """
        if self.settings.run.parallel == "ddp" and not self.ema and auxiliary_heads(self.model) is None:
            return self.model if self.world.speaks else None
        tensors = self.ema or model_tensors(self.model)
        if not self.world.speaks:
            return None
        return self._like_model(tensors)

    def after_update(self, state: State) -> None:
        """Wake the parts whose turn has come; move the running average of the weights towards the newest ones."""
        unfreeze_layers(self.training.optimiser, state.step, self.settings.optimiser.unfreeze_every)
        decay = self.settings.run.ema
        if decay > 0.0:
            with torch.no_grad():
                for name, tensor in model_tensors(self.model).items():
                    if name not in self.ema:
                        self.ema[name] = tensor.clone()
                    else:
                        # At first the average is young: it must not remember the start for a thousand steps.
                        self.ema[name].lerp_(tensor, 1.0 - min(decay, (state.step + 1) / (state.step + 10)))

    def finish(self, state: State) -> dict[str, str]:
        """The model folders that a run leaves: last/, average/ and, from validation, best/."""
        if str(state.step) not in state.scores:
            self.validate(state)  # the last weights are often the best, wherever a run ends
        tensors = model_tensors(self.model)
        if self.world.speaks:
            plain = self._like_model(tensors)
            self._save_model("last", plain, state, self._judge(plain), weights=f"those of step {state.step:,}")
            checkpoints = self._last_checkpoints()
            saved = [load_checkpoint(path).model for path in checkpoints]
            load_model_tensors(plain, average_of(saved or [tensors]))
            which = f"the mean of {len(checkpoints)} checkpoints, the last at" if len(checkpoints) > 1 else "those of"
            self._save_model("average", plain, state, self._judge(plain), weights=f"{which} step {state.step:,}")
        barrier(self.world)
        return {name: str(self.folder / name) for name in ("best", "last", "average") if (self.folder / name).exists()}

    def _like_model(self, tensors: dict[str, Tensor]) -> Model:
        """A model like the one in training, on one device, with these numbers."""
        kind: type[Any] = type(self.model)
        model: Model = kind(self.model.config).to(self.world.device, next(iter(tensors.values())).dtype)
        load_model_tensors(model, tensors)
        return model

    def _judge(self, model: Model) -> Validation:
        assert self.validator is not None
        return self.validator(model)

    def _save_model(self, name: str, model: Model, state: State, result: Validation, *, weights: str) -> None:
        card = describe_model(self.record, self.lesson, model, state, result, weights=weights)
        save_model(self.folder / name, model, self.lesson.tokenizers, card=card)

    def _last_checkpoints(self) -> list[Path]:
        return list_checkpoints(self.checkpoints)[-self.settings.run.average :]


def average_of(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models, number by number, summed in double precision."""
    return {
        name: (sum((model[name].double() for model in models), torch.tensor(0.0).double()) / len(models)).to(
            tensor.dtype
        )
        for name, tensor in models[0].items()
    }


def open_session(
    folder: Path,
    record: RunRecord,
    world: World,
    prepared: Any,
    *,
    emit: Emit,
    checkpoint: Checkpoint | None,
    requests: StopRequests,
    start: LoadedModel | None = None,
) -> tuple[Session, State]:
    """A session that is ready for `fit`, and the state from which it goes on. `prepared` is what the task has made."""
    settings = record.settings
    lesson = task_of(settings).lesson(prepared, settings)
    number_type = torch.float64 if settings.run.precision == "float64" else torch.float32
    model = lesson.make_model().to(world.device, number_type)
    if checkpoint is not None:
        refuse_other_shapes(model, checkpoint.model, saved=checkpoint.folder, record=folder / NAME)
        load_model_tensors(model, checkpoint.model)
    elif start is not None:
        emit("note", text=load_matching_weights(model, start))
    if settings.optimiser.frozen:
        n_frozen = len(freeze(model, settings.optimiser.frozen))
        emit("note", text=f"{n_frozen} tensors keep their numbers (optimiser.frozen)")
    whole = ModelWithObjective(model, lesson.objective).train()
    if settings.run.compile:
        whole.compile(dynamic=True)  # batches are of many shapes
    module = wrap(whole, world, settings.run.parallel)
    optimiser = make_optimiser(model, settings.optimiser, bfloat16=settings.run.precision == "bfloat16")
    state = State(LoaderState(epoch=0, position=0, seed=settings.run.seed))
    if checkpoint is not None:
        state = replace(checkpoint.state)
        load_optimiser_tensors(model, optimiser, checkpoint.optimiser)
        load_generator_tensors(checkpoint.generators)
    unfreeze_layers(optimiser, state.step, settings.optimiser.unfreeze_every)
    session = Session(
        folder=folder,
        record=record,
        world=world,
        model=model,
        lesson=lesson,
        validator=lesson.make_validator(lambda text: emit("note", text=text)) if world.speaks else None,
        ema={} if checkpoint is None else {name: t.to(world.device, number_type) for name, t in checkpoint.ema.items()},
        emit=emit,
        requests=requests,
    )
    loader = make_loader(lesson, settings, world, state.loader)
    if n_left_out := len(loader.left_out):
        n_all, max_len = sum(loader.dataset.sizes), settings.data.max_len
        emit("note", text=too_long(n_left_out, n_all, lesson.about.unit, max_len, what="training"))
    session.training = make_training(session, module, optimiser, loader)
    return session, state


def make_training(
    session: Session, module: nn.Module, optimiser: torch.optim.Optimizer, loader: Loader[TensorBatch]
) -> Training:
    """The loop's own view of the session."""
    settings, run, emit = session.settings, session.settings.run, session.emit
    warmup_steps = settings.schedule.warmup_steps
    peak = peak_rate(settings.optimiser, d_model=session.model.config.d_model, warmup_steps=warmup_steps)
    return Training(
        settings=run,
        world=session.world,
        module=module,
        optimiser=optimiser,
        max_grad_norm=settings.optimiser.max_grad_norm,
        rate_at=lambda step: learning_rate(step, peak=peak, steps=run.steps, schedule=settings.schedule),
        batches=loader,
        autocast=lambda: autocast(session.world.device, run.precision),
        after_update=session.after_update,
        log=session.log,
        validate=session.validate,
        save=session.save,
        asked_to_stop=session.requests.reason,
        warn=lambda text: emit("warning", text=text),
        micro_batches=run.micro_batches,
    )


def make_loader(lesson: PreparedTask, settings: Settings, world: World, state: LoaderState) -> Loader[TensorBatch]:
    return Loader(
        lesson.make_dataset(world.device.type == "cuda"),
        batch_tokens=settings.data.batch_tokens,
        seed=settings.run.seed,
        state=state,
        max_len=settings.data.max_len,
        weights=settings.data.weights or None,
        rank=world.rank,
        n_ranks=world.size,
        n_workers=settings.data.workers,
    )


def autocast(device: torch.device, precision: str) -> Any:
    """Products of matrices in bfloat16 where the run wants it; weights, sums and norms stay float32."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()
