"""The parts of a run, put together: at its beginning, or as a checkpoint left it."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.data.batch import AnyBatch
from heedful.data.loader import Loader, LoaderState
from heedful.models.folder import LoadedModel
from heedful.training.checkpoint import Checkpoint, State
from heedful.training.distributed import World, wrap
from heedful.training.loop import ModelWithObjective, Training
from heedful.training.optimiser import make_optimiser, peak_rate
from heedful.training.parts import begin_with, freeze, thaw
from heedful.training.record import NAME, RunRecord
from heedful.training.schedule import learning_rate
from heedful.training.session import Emit, Session
from heedful.training.settings import Settings
from heedful.training.signals import StopRequests
from heedful.training.tasks.table import task_of
from heedful.training.tasks.task import Lesson
from heedful.training.tensors import (
    load_generator_tensors,
    load_model_tensors,
    load_optimiser_tensors,
    refuse_other_shapes,
)
from heedful.training.wording import too_long


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
        emit("note", text=begin_with(model, start))
    if settings.optimiser.frozen:
        n_frozen = len(freeze(model, settings.optimiser.frozen))
        emit("note", text=f"{n_frozen} tensors keep their numbers (optimiser.frozen)")
    whole = ModelWithObjective(model, lesson.objective).train()
    if settings.run.compile:
        whole.compile(dynamic=True)  # batches are of many shapes
    module = wrap(whole, world, settings.run.shard)
    optimiser = make_optimiser(model, settings.optimiser, bfloat16=settings.run.precision == "bfloat16")
    state = State(LoaderState(epoch=0, position=0, seed=settings.run.seed))
    if checkpoint is not None:
        state = replace(checkpoint.state)
        load_optimiser_tensors(model, optimiser, checkpoint.optimiser)
        load_generator_tensors(checkpoint.generators)
    thaw(optimiser, state.step, settings.optimiser.unfreeze_every)
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
    session: Session, module: nn.Module, optimiser: torch.optim.Optimizer, loader: Loader[AnyBatch]
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
        accumulate=run.accumulate,
    )


def make_loader(lesson: Lesson, settings: Settings, world: World, state: LoaderState) -> Loader[AnyBatch]:
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
