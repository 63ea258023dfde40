"""The trainer: it builds model, optimiser and loader of a run, trains, validates, saves and leaves model folders.

The only listener is the event log (`emit`). Under torchrun every rank has a trainer; rank 0 validates, logs and writes.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.data.collate import TensorBatch
from heedful.data.loader import Loader, LoaderState
from heedful.data.seeding import derived_seed
from heedful.errors import UserError
from heedful.formatting import duration, too_long
from heedful.models.model_io import LoadedModel, Model, save_model
from heedful.training.auxiliary_losses import auxiliary_heads
from heedful.training.checkpoint import (
    Checkpoint,
    TrainerState,
    average_of,
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
from heedful.training.settings import Settings
from heedful.training.signals import Abandoned, StopRequests
from heedful.training.tasks.base import PreparedTask
from heedful.training.tasks.registry import metric_of, task_of
from heedful.training.validation import Validation

Emit = Callable[..., None]  # (kind of event, **fields)


class ModelWithObjective(nn.Module):
    """A model and its objective as one module, batch in and loss out: DDP and FSDP act around one forward."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: TensorBatch, step: int) -> Tensor:
        return self.objective(self.model, batch, step)


@dataclass
class Progress:
    """Sums over the steps since the last `step` event: the loss of this rank, the tokens of all ranks."""

    loss: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    grad_norm: float = 0.0  # of the newest step
    rate: float = 0.0  # of the newest step

    def add(self, *, loss: float, tokens: float, seconds: float, grad_norm: float, rate: float) -> None:
        self.loss += loss
        self.tokens += tokens
        self.seconds += seconds
        self.grad_norm, self.rate = grad_norm, rate


class NotFinite(UserError):
    """The loss or the gradient is NaN or infinite; the weights are still those of the step before."""

    def __init__(self, message: str, *, step: int, examples: list[int]) -> None:
        super().__init__(message)
        self.step = step
        self.examples = examples  # numbers of the examples in this rank's part of the batch


class Trainer:
    """One run in training.

    >>> trainer = Trainer(folder, record, world, prepared, emit=log.emit, requests=requests)  # doctest: +SKIP
    >>> trainer.fit()  # doctest: +SKIP
    'all 10,000 steps are done'
    >>> trainer.finish()  # doctest: +SKIP
    {'best': 'runs/en-de/best', 'last': 'runs/en-de/last', 'average': 'runs/en-de/average'}
    """

    def __init__(
        self,
        folder: Path,
        record: RunRecord,
        world: World,
        prepared: Any,
        *,
        emit: Emit,
        requests: StopRequests,
        checkpoint: Checkpoint | None = None,
        init_from: LoadedModel | None = None,
    ) -> None:
        """Build every part of the run.

        `prepared`: the data, as the task's `reopen` returns it. `checkpoint`: where to resume. `init_from`: a model
        whose weights a new run starts from.
        """
        self.folder = folder
        self.record = record
        self.world = world
        self.emit = emit
        self.requests = requests
        settings = record.settings
        self.task: PreparedTask = task_of(settings).assemble(prepared, settings)
        self.model = self._make_model(checkpoint, init_from)
        self.module = self._wrap_model()
        self.optimiser = make_optimiser(self.model, settings.optimiser, bfloat16=settings.run.precision == "bfloat16")
        self.state = TrainerState(LoaderState(epoch=0, position=0, seed=settings.run.seed))
        self.ema: dict[str, Tensor] = {}  # exponential moving average of the weights, empty if run.ema is 0
        if checkpoint is not None:
            self._restore(checkpoint)
        unfreeze_layers(self.optimiser, self.state.step, settings.optimiser.unfreeze_every)
        self.validator = self.task.make_validator(self._note) if world.is_rank_zero else None
        self.loader = make_loader(self.task, settings, world, self.state.loader)
        if n_left_out := len(self.loader.left_out):
            n_all, unit = sum(self.loader.dataset.sizes), self.task.description.unit
            self._note(too_long(n_left_out, n_all, unit, settings.data.max_len, what="training"))
        self.micro_batches = settings.run.micro_batches  # doubled when memory does not suffice
        self.peak_rate = peak_rate(
            settings.optimiser,
            d_model=self.model.config.d_model,
            warmup_steps=settings.schedule.warmup_steps,
        )
        self.progress = Progress()
        self._last_hypotheses: list[str | None] = []

    @property
    def settings(self) -> Settings:
        return self.record.settings

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    # --- training -----------------------------------------------------------------------------------------------------

    def fit(self) -> str:
        """Train until there is a reason to stop; return the reason.

        Each pass of the loop begins between two steps, where a run can be resumed.
        """
        state, run = self.state, self.settings.run
        self.progress, saved = Progress(), state.step
        while True:
            validated = self.needs_validation() and self.validate()
            if validated or (state.step != saved and due(state.step, run.save_every)):
                self.save()
                saved = state.step
            if (reason := self.reason_to_stop()) is not None:
                break
            self.train_step()
            if due(state.step, run.log_every):
                self.log_progress()
        if state.step != saved:
            self.save()
        return reason

    def train_step(self) -> None:
        """Update the weights once, from the next batch."""
        started, state = time.perf_counter(), self.state
        rate = self.rate_at(state.step)
        set_rate(self.optimiser, rate)

        batch = next(self.loader)
        n_targets = sum_over_ranks(self.world, batch.n_target_tokens)[0]
        n_tokens = max(1.0, n_targets)  # 0 if nothing in the batch can be masked: then the step changes nothing
        loss = self.backward(batch, n_tokens)
        max_norm = self.settings.optimiser.max_grad_norm
        grad_norm = float(full_tensor(clip_gradients(self.module.parameters(), max_norm)))
        self._check_finite(batch, loss, grad_norm)
        self.optimiser.step()
        self.optimiser.zero_grad()

        state.step += 1
        state.loader = self.loader.state
        state.tokens += int(n_targets)
        self._after_update()
        seconds = time.perf_counter() - started
        state.seconds += seconds
        self.progress.add(loss=loss, tokens=n_tokens, seconds=seconds, grad_norm=grad_norm, rate=rate)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of update number `step`, counted from 0."""
        settings = self.settings
        return learning_rate(step, peak=self.peak_rate, steps=settings.run.steps, schedule=settings.schedule)

    def backward(self, batch: TensorBatch, n_tokens: float) -> float:
        """Add up the gradients of the mean loss over the `n_tokens` of all ranks; return this rank's sum of losses.

        If memory does not suffice, double the number of micro-batches and repeat the batch: the result is the same, but
        slower.
        """
        step = self.state.step
        while True:
            # Random numbers are a function of seed, step and rank: nothing to restore, whatever happened before.
            torch.manual_seed(derived_seed(self.settings.run.seed, step, self.world.rank))
            try:
                return self._backward_micro_batches(batch, n_tokens)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # Outside of the except block, so that the failed pass and its tensors are gone.
            self.optimiser.zero_grad()
            if self.world.size > 1 or 2 * self.micro_batches > max(1, len(batch)):
                raise UserError(
                    f"step {step + 1}: out of memory with {self.micro_batches} micro-batches. Lower data.batch_tokens "
                    f"(this step has {int(n_tokens):,} target tokens), or raise run.micro_batches"
                )
            self.micro_batches *= 2
            text = f"step {step + 1}: out of memory; from now on a batch is cut into {self.micro_batches} micro-batches"
            self.emit("warning", text=text)

    def _backward_micro_batches(self, batch: TensorBatch, n_tokens: float) -> float:
        """Run forward and backward through each part of the batch.

        The loss of a part is a sum, divided by the tokens of all parts on all ranks, so neither parts nor ranks change
        the gradient. DDP and FSDP average over the ranks, hence the factor `world.size`.
        """
        total = 0.0
        parts = batch.split(self.micro_batches) if self.micro_batches > 1 else (batch,)
        for number, part in enumerate(parts):
            with gradients_synced(self.module, last=number == len(parts) - 1):
                with autocast(self.world.device, self.settings.run.precision):
                    loss = self.module(part.to(self.world.device), self.state.step)
                (loss * (self.world.size / n_tokens)).backward()
            total += loss.item()
        return total

    def _check_finite(self, batch: TensorBatch, loss: float, grad_norm: float) -> None:
        """Stop before the update, on all ranks alike, if the loss or the gradient of any rank is not finite."""
        numbers, step = torch.tensor([loss, grad_norm]), self.state.step + 1
        if any_rank(self.world, not bool(torch.isfinite(numbers).all())):
            raise NotFinite(
                f"step {step}: the loss ({loss}) or the norm of the gradient ({grad_norm}) is not finite on at least "
                "one rank. The weights were not updated; not-finite.json in the run folder lists the examples of the "
                "batch. A lower optimiser.lr, a longer schedule.warmup_steps or run.precision=float32 usually helps",
                step=step,
                examples=sorted(batch.indices.tolist()),
            )

    def _after_update(self) -> None:
        """Unfreeze the layers that are due, and move the average of the weights towards the newest ones."""
        state, decay = self.state, self.settings.run.ema
        unfreeze_layers(self.optimiser, state.step, self.settings.optimiser.unfreeze_every)
        if decay > 0.0:
            with torch.no_grad():
                for name, tensor in model_tensors(self.model).items():
                    if name not in self.ema:
                        self.ema[name] = tensor.clone()
                    else:
                        # A smaller decay at first, so that the random initial weights soon have no part in the average.
                        self.ema[name].lerp_(tensor, 1.0 - min(decay, (state.step + 1) / (state.step + 10)))

    def trial_pass(self, batch: TensorBatch) -> float:
        """Run forward and backward through a batch without an update; return its target tokens per second.

        The model stays as it was: gradients are dropped, and buffers (running statistics of batch norms) are restored.
        """
        started, n_tokens = time.perf_counter(), max(1, batch.n_target_tokens)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.backward(batch, n_tokens)
        self.optimiser.zero_grad()
        for buffer, value in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(value)
        if self.world.device.type == "cuda":
            torch.cuda.synchronize()
        return n_tokens / (time.perf_counter() - started)

    def reason_to_stop(self) -> str | None:
        """Return why training ends here, the same on all ranks; None if it continues."""
        run, state = self.settings.run, self.state
        if state.step >= run.steps:
            return f"all {run.steps:,} steps are done"
        if run.patience is not None and state.validations_since_best >= run.patience:
            return f"no better score in {run.patience} validations (run.patience)"
        signal = self.requests.reason()
        out_of_time = run.minutes is not None and state.seconds >= run.minutes * 60
        if self.world.size > 1:  # clocks and signals differ from rank to rank
            out_of_time = any_rank(self.world, out_of_time)
            signalled = any_rank(self.world, signal is not None)
            signal = (signal or "another rank was stopped") if signalled else None
        if signal is not None:
            return signal
        return (
            None
            if run.minutes is None or not out_of_time
            else f"the time limit of {duration(run.minutes * 60)} is over"
        )

    # --- logging, validation, checkpoints -----------------------------------------------------------------------------

    def log_progress(self) -> None:
        """Emit a `step` event about the steps since the last one."""
        run, state, progress = self.settings.run, self.state, self.progress
        loss = sum_over_ranks(self.world, progress.loss)[0]
        seconds_left = (run.steps - state.step) * state.seconds / max(1, state.step)
        if run.minutes is not None:
            seconds_left = min(seconds_left, max(0.0, run.minutes * 60 - state.seconds))
        self.emit(
            "step",
            step=state.step,
            steps=run.steps,
            loss=loss / progress.tokens,
            tokens_per_second=progress.tokens / progress.seconds,
            lr=progress.rate,
            grad_norm=progress.grad_norm,
            epoch=state.loader.epoch,
            seconds=state.seconds,
            seconds_left=seconds_left,
            tokens=state.tokens,
        )
        self.progress = Progress()

    def needs_validation(self) -> bool:
        """Return whether this step must be validated; also true after a resume if its validation was abandoned."""
        state = self.state
        is_due = state.step > 0 and due(state.step, self.settings.run.validate_every)
        return is_due and str(state.step) not in state.scores

    def validate(self) -> bool:
        """Score the model and save it in best/ if it is the best so far; False if a signal interrupted it."""
        started, state = time.perf_counter(), self.state
        model, result, score = self.eval_model(), None, None
        if model is not None and self.validator is not None:
            with contextlib.suppress(Abandoned), self.requests.abandoning():
                result = self.validator.run(model)
                score = result.score(metric_of(self.settings))
        best = state.scores.get(str(state.best_step))
        if model is not None and result is not None and score is not None and (best is None or score > best):
            self._save_model("best", model, result, weights=f"the best on validation, at step {state.step:,}")
        score = broadcast_from_rank0(self.world, score)
        if score is None:
            return False
        is_best = best is None or score > best
        state.validations_since_best = 0 if is_best else state.validations_since_best + 1
        state.scores[str(state.step)] = score
        if result is not None:
            self._log_validation(result, is_best, time.perf_counter() - started)
        return True

    def _log_validation(self, result: Validation, is_best: bool, seconds: float) -> None:
        state, hypotheses = self.state, [sample.hypothesis for sample in result.samples]
        previous = self._last_hypotheses or [None] * len(hypotheses)
        samples = [
            {"source": now.source, "reference": now.reference, "hypothesis": now.hypothesis, "before": before}
            for now, before in zip(result.samples, previous, strict=False)
        ]
        self._last_hypotheses = [*hypotheses]
        text_scores = {name: result.metrics[name] for name in ("bleu", "chrf") if name in result.metrics}
        others = {name: v for name, v in result.metrics.items() if name not in ("perplexity", *text_scores)}
        self.emit(
            "validation",
            step=state.step,
            loss=result.loss,
            perplexity=result.metrics.get("perplexity"),
            **text_scores,
            metrics=others,
            score=state.scores[str(state.step)],
            best=is_best,
            best_score=state.scores[str(state.best_step)],
            best_step=state.best_step,
            validations_since_best=state.validations_since_best,
            patience=self.settings.run.patience,
            seconds=seconds,
            samples=samples,
        )

    def save(self) -> None:
        """Write a checkpoint, and delete checkpoints that need not be kept; rank 0 writes what all ranks hold."""
        started, run, state = time.perf_counter(), self.settings.run, self.state
        model, optimiser = model_tensors(self.model), optimiser_tensors(self.model, self.optimiser)
        if self.world.is_rank_zero:
            folder = save_checkpoint(
                self.checkpoints,
                state,
                model=model,
                optimiser=optimiser,
                generators=generator_tensors(),
                ema=self.ema,
            )
            best = sorted(state.scores, key=lambda step: -state.scores[step])[: run.keep_best]
            prune(self.checkpoints, keep_last=max(run.keep_last, run.average), best=[int(step) for step in best])
            size = sum(path.stat().st_size for path in folder.iterdir())
            self.emit("saved", step=state.step, folder=str(folder), bytes=size, seconds=time.perf_counter() - started)
        barrier(self.world)

    def eval_model(self) -> Model | None:
        """Return, on rank 0, the model to validate: with averaged or gathered weights, and without auxiliary heads."""
        if self.settings.run.parallel == "ddp" and not self.ema and auxiliary_heads(self.model) is None:
            return self.model if self.world.is_rank_zero else None
        tensors = self.ema or model_tensors(self.model)
        return self._copy_with(tensors) if self.world.is_rank_zero else None

    def finish(self) -> dict[str, str]:
        """Leave model folders: last/, average/ (the mean of the last checkpoints) and, from validation, best/.

        Returns the path of each by name.
        """
        state = self.state
        if str(state.step) not in state.scores:
            self.validate()  # the last weights are often the best, whatever step a run ends at
        tensors = model_tensors(self.model)
        if self.world.is_rank_zero:
            model = self._copy_with(tensors)
            self._save_model("last", model, self._scores_of(model), weights=f"those of step {state.step:,}")
            checkpoints = list_checkpoints(self.checkpoints)[-self.settings.run.average :]
            load_model_tensors(model, average_of([load_checkpoint(path).model for path in checkpoints] or [tensors]))
            which = f"the mean of {len(checkpoints)} checkpoints, the last at" if len(checkpoints) > 1 else "those of"
            self._save_model("average", model, self._scores_of(model), weights=f"{which} step {state.step:,}")
        barrier(self.world)
        return {name: str(self.folder / name) for name in ("best", "last", "average") if (self.folder / name).exists()}

    # --- building -----------------------------------------------------------------------------------------------------

    def _make_model(self, checkpoint: Checkpoint | None, init_from: LoadedModel | None) -> Model:
        """Make the model, with new weights, those of the checkpoint, or those of a model to start from."""
        settings = self.settings
        dtype = torch.float64 if settings.run.precision == "float64" else torch.float32
        model = self.task.make_model().to(self.world.device, dtype)
        if checkpoint is not None:
            refuse_other_shapes(model, checkpoint.model, saved=checkpoint.folder, record=self.folder / NAME)
            load_model_tensors(model, checkpoint.model)
        elif init_from is not None:
            self._note(load_matching_weights(model, init_from))
        if settings.optimiser.frozen:
            n_frozen = len(freeze(model, settings.optimiser.frozen))
            self._note(f"{n_frozen} tensors are frozen (optimiser.frozen)")
        return model

    def _wrap_model(self) -> nn.Module:
        """Join model and objective, compile them if asked for, and wrap them for several ranks."""
        run = self.settings.run
        module = ModelWithObjective(self.model, self.task.objective).train()
        if run.compile:
            module.compile(dynamic=True)  # batches are of many shapes
        return wrap(module, self.world, run.parallel)

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Take over state, optimiser, random generators and the average of the weights."""
        self.state = replace(checkpoint.state)
        load_optimiser_tensors(self.model, self.optimiser, checkpoint.optimiser)
        load_generator_tensors(checkpoint.generators)
        dtype = next(self.model.parameters()).dtype
        self.ema = {name: tensor.to(self.world.device, dtype) for name, tensor in checkpoint.ema.items()}

    def _copy_with(self, tensors: dict[str, Tensor]) -> Model:
        """Make a model like the one in training, on one device, with these weights."""
        kind: type[Any] = type(self.model)
        model: Model = kind(self.model.config).to(self.world.device, next(iter(tensors.values())).dtype)
        load_model_tensors(model, tensors)
        return model

    def _scores_of(self, model: Model) -> Validation:
        assert self.validator is not None, "only rank 0 validates"
        return self.validator.run(model)

    def _save_model(self, name: str, model: Model, result: Validation, *, weights: str) -> None:
        card = describe_model(self.record, self.task, model, self.state, result, weights=weights)
        save_model(self.folder / name, model, self.task.tokenizers, card=card)

    def _note(self, text: str) -> None:
        self.emit("note", text=text)


def make_loader(task: PreparedTask, settings: Settings, world: World, state: LoaderState) -> Loader[TensorBatch]:
    """Make the loader of the training data, ready to give the batch after `state`."""
    return Loader(
        task.make_dataset(world.device.type == "cuda"),
        batch_tokens=settings.data.batch_tokens,
        seed=settings.run.seed,
        state=state,
        max_len=settings.data.max_len,
        weights=settings.data.weights or None,
        rank=world.rank,
        n_ranks=world.size,
        n_workers=settings.data.workers,
    )


def due(step: int, every: int) -> bool:
    return step % every == 0


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Multiply matrices in bfloat16 if the run does so; weights, sums and norms stay float32."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory did not suffice: PyTorch has a class of error for GPUs, for the CPU only words."""
    words = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(word in str(error) for word in words)
