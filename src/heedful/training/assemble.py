"""The parts of a run, put together: at its beginning, or as a checkpoint left it."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.data.loader import Loader, LoaderState
from heedful.data.pairs import Pairs
from heedful.models.seq2seq import Seq2Seq
from heedful.training.checkpoint import Checkpoint, State
from heedful.training.distributed import World, wrap
from heedful.training.loop import ModelWithObjective, Training
from heedful.training.objectives import make_objective
from heedful.training.optimiser import make_optimiser, peak_rate
from heedful.training.prepare import Prepared
from heedful.training.record import RunRecord
from heedful.training.schedule import learning_rate
from heedful.training.session import Emit, Session
from heedful.training.settings import Settings
from heedful.training.signals import StopRequests
from heedful.training.tensors import load_generator_tensors, load_model_tensors, load_optimiser_tensors
from heedful.training.validation import Validator


def open_session(
    folder: Path,
    record: RunRecord,
    world: World,
    prepared: Prepared,
    *,
    emit: Emit,
    checkpoint: Checkpoint | None,
    start_weights: dict[str, Tensor] | None,
    requests: StopRequests,
) -> tuple[Session, State]:
    """A session that is ready for `fit`, and the state from which it goes on."""
    settings = record.settings
    model = make_model(settings, prepared, world)
    if checkpoint is not None:
        load_model_tensors(model, checkpoint.model)
    elif start_weights is not None:
        load_model_tensors(model, start_weights)
    objective = make_objective(
        settings.objective, label_smoothing=settings.loss.label_smoothing, r_drop=settings.loss.r_drop
    )
    whole = ModelWithObjective(model, objective).train()
    if settings.run.compile:
        whole.compile(dynamic=True)  # batches are of many shapes
    module = wrap(whole, world, settings.run.shard)
    optimiser = make_optimiser(model, settings.optimiser)
    state = State(LoaderState(epoch=0, position=0, seed=settings.run.seed))
    if checkpoint is not None:
        state = replace(checkpoint.state)
        load_optimiser_tensors(model, optimiser, checkpoint.optimiser)
        load_generator_tensors(checkpoint.generators)
    session = Session(
        folder=folder,
        record=record,
        world=world,
        model=model,
        prepared=prepared,
        validator=make_validator(prepared, settings) if world.speaks else None,
        ema={} if checkpoint is None else {name: t.to(world.device) for name, t in checkpoint.ema.items()},
        emit=emit,
        requests=requests,
    )
    session.training = make_training(session, module, optimiser, make_loader(prepared, settings, world, state.loader))
    return session, state


def make_model(settings: Settings, prepared: Prepared, world: World) -> Seq2Seq:
    torch.manual_seed(settings.run.seed)  # the same first weights on every rank
    config = settings.model_config(
        source_vocab_size=prepared.tokenizers.source.vocab_size,
        target_vocab_size=prepared.tokenizers.target.vocab_size,
    )
    return Seq2Seq(config).to(world.device, torch.float64 if settings.run.precision == "float64" else torch.float32)


def make_training(
    session: Session, module: nn.Module, optimiser: torch.optim.Optimizer, loader: Loader[Batch]
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


def make_loader(prepared: Prepared, settings: Settings, world: World, state: LoaderState) -> Loader[Batch]:
    pairs = Pairs(prepared.train, tokenizers=prepared.tokenizers, pin_memory=world.device.type == "cuda")
    return Loader(
        pairs,
        batch_tokens=settings.data.batch_tokens,
        seed=settings.run.seed,
        state=state,
        max_len=settings.data.max_len,
        weights=settings.data.weights or None,
        rank=world.rank,
        n_ranks=world.size,
        n_workers=settings.data.workers,
    )


def make_validator(prepared: Prepared, settings: Settings) -> Validator:
    return Validator(
        prepared.valid,
        prepared.tokenizers,
        batch_tokens=settings.data.batch_tokens,
        max_len=settings.data.max_len,
        sentences=settings.run.sentences,
    )


def autocast(device: torch.device, precision: str) -> Any:
    """bfloat16 where it is wanted, or where it is chosen for itself: on GPUs that have it."""
    wanted = precision == "bfloat16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return torch.autocast(device.type, torch.bfloat16) if wanted else contextlib.nullcontext()
