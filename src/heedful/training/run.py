"""`train`: from raw files to a run folder with a model in it; from a run folder, onwards."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from heedful import __version__
from heedful.config import to_values
from heedful.errors import UserError
from heedful.files import clear_unfinished
from heedful.models.folder import load_model, weights_of
from heedful.training.assemble import open_session
from heedful.training.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint, versions
from heedful.training.distributed import World, agree, barrier, joined_world
from heedful.training.log import Listener, RunLog
from heedful.training.loop import NotFinite, fit
from heedful.training.machine import settle_machine
from heedful.training.ownership import owned
from heedful.training.plan import choose_threads, make_plan
from heedful.training.prepare import Prepared, prepare_data, reopen_data
from heedful.training.record import Files, RunRecord, flat, read_record, refuse_differences, update_record, write_record
from heedful.training.session import Emit
from heedful.training.settings import choose_recipe, read_settings
from heedful.training.signals import StopRequests, stop_requests


@dataclass(frozen=True)
class Run:
    """What a call of `train` leaves behind."""

    folder: Path
    step: int
    reason: str  # why it ended
    interrupted: bool = False
    scores: dict[str, float] = field(default_factory=dict)  # step -> validation score, more is better

    @property
    def best(self) -> Path:
        return self.folder / "best"


def train(
    *,
    folder: str | Path,
    source: str | Path | Sequence[str | Path] = (),
    target: str | Path | Sequence[str | Path] = (),
    valid_source: str | Path | None = None,
    valid_target: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Iterable[str] = (),
    resume: bool = False,
    start_from: str | Path | None = None,
    dry_run: bool = False,
    listeners: Sequence[Listener] = (),
) -> Run:
    """Train a translation model from aligned text files, or go on with a run (`resume`).

    `overrides` are "key=value" strings, as --set takes them. `listeners` are called with every event of the run. A dry
    run prepares everything, measures, and leaves nothing behind.
    """
    folder = Path(folder)
    files = Files.of(source, target, valid_source, valid_target, start_from)
    # torchrun starts all ranks again when one has failed: that is a resume, although nobody typed it.
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    record = settle_record(folder, files, recipe, list(overrides), resume=resume)
    with joined_world(record.settings.run.device) as world, contextlib.ExitStack() as stack:
        if dry_run:
            folder = Path(agree(world, stack.enter_context(tempfile.TemporaryDirectory(prefix="heedful-"))))
        if world.speaks:
            stack.enter_context(owned(folder))
        log = stack.enter_context(RunLog(folder / "log.jsonl" if world.speaks else None, listeners))
        requests = stack.enter_context(stop_requests())
        settle_machine(record.settings.run, world)
        return _train(folder, record, world, log.emit, requests, dry_run=dry_run)


def settle_record(
    folder: Path, files: Files, recipe: str | Path | None, overrides: list[str], *, resume: bool
) -> RunRecord:
    """What this run is made of: from its folder when it goes on, otherwise from what was given."""
    exists = (folder / "settings.toml").exists()
    if exists and not resume:
        raise UserError(
            f"{folder}: there is a run in this folder already. Go on with it by --resume, or choose another folder"
        )
    if exists:
        saved = read_record(folder)
        wanted = saved.with_overrides(overrides)
        refuse_differences(folder, saved, wanted, files)
        return wanted
    if not files.source:
        what = (
            "nothing to resume, there is no settings.toml" if resume else "no training data: give --source and --target"
        )
        raise UserError(f"{folder}: {what}")
    if files.start_from:
        overrides = [*overrides, *model_overrides(files.start_from)]
    if recipe is None:
        recipe = choose_recipe(sum(1 for corpus in files.corpora() for _ in corpus.records()))
    return RunRecord(files, read_settings(recipe, overrides), str(recipe))


def model_overrides(folder: str) -> list[str]:
    """The settings that a model to start from brings with it: its shape is given, only dropout may be chosen anew."""
    values = flat(to_values(load_model(folder).model.config))
    own = {"source_vocab_size", "target_vocab_size", "dropout", "attention_dropout"}
    return [f"model.{key}={json.dumps(value)}" for key, value in values.items() if key not in own]


def _train(folder: Path, record: RunRecord, world: World, emit: Emit, requests: StopRequests, *, dry_run: bool) -> Run:
    run = record.settings.run
    emit("start", version=__version__, settings=to_values(record.settings), versions=versions())
    emit("note", text=f"recipe: {record.recipe}")
    prepared = _prepare(folder, record, world, emit)
    checkpoint = _newest(folder, record, world, emit)
    record = read_record(folder)  # now with the fingerprints of the corpora
    session, state = open_session(
        folder,
        record,
        world,
        prepared,
        emit=emit,
        checkpoint=checkpoint,
        start_weights=_start_weights(record.files.start_from) if checkpoint is None else None,
        requests=requests,
    )
    if checkpoint is None:
        if run.threads is None and world.size == 1 and world.device.type == "cpu" and torch.get_num_threads() > 1:
            choose_threads(session)
        emit("plan", **make_plan(session, state))
    if dry_run:
        return Run(folder, state.step, "dry run: stopped after the plan")
    if checkpoint is not None and state.step >= run.steps:
        reason = f"already at step {state.step:,} of {run.steps:,}; to go on, raise it with --set run.steps=…"
    else:
        try:
            reason = fit(session.training, state)
        except NotFinite as error:
            name = "not-finite.json" if world.speaks else f"not-finite-{world.rank}.json"
            (folder / name).write_text(json.dumps({"step": error.step, "examples": error.examples}) + "\n")
            emit("stop", reason=str(error), step=state.step, seconds=state.seconds, tokens=state.tokens)
            raise
    emit("stop", reason=reason, step=state.step, seconds=state.seconds, tokens=state.tokens)
    interrupted = requests.reason() is not None
    if not interrupted:
        emit("done", folders=session.finish(state))
    return Run(folder, state.step, reason, interrupted, state.scores)


def _prepare(folder: Path, record: RunRecord, world: World, emit: Emit) -> Prepared:
    """Rank 0 prepares what is not there yet; then all ranks read it."""
    if world.speaks:
        clear_unfinished(folder)
        clear_unfinished(folder / "checkpoints")
        ready = folder / "data" / "ready"
        if ready.exists():
            update_record(folder, record)
        else:
            write_record(folder, record)  # first, so that --resume works from here on
            corpora = record.files.corpora(record.settings.data.on_bad_line)
            valid = record.files.valid_corpus()
            start = record.files.start_from
            prepare_data(
                folder,
                corpora,
                valid,
                record.settings,
                tokenizers=load_model(start).tokenizers if start else None,
                say=lambda text: emit("note", text=text),
            )
            ready.touch()
    barrier(world)
    return reopen_data(folder)


def _newest(folder: Path, record: RunRecord, world: World, emit: Emit) -> Checkpoint | None:
    """The newest whole checkpoint. Rank 0 looks for it, since it sets damaged ones aside; the others read the same."""
    if world.speaks:
        checkpoint = newest_checkpoint(folder / "checkpoints", lambda text: emit("warning", text=text))
        agree(world, None if checkpoint is None else checkpoint.folder.name)
    else:
        name = agree(world, None)
        checkpoint = None if name is None else load_checkpoint(folder / "checkpoints" / name)
    if checkpoint is not None and record.settings.run.threads is None and world.size == 1:
        torch.set_num_threads(checkpoint.versions["threads"])  # as the run began: other sums, other bits
    if checkpoint is not None and checkpoint.versions["threads"] != versions()["threads"]:
        emit(
            "warning",
            text=f"this run was saved with {checkpoint.versions['threads']} threads and goes on with "
            f"{versions()['threads']}: sums are rounded in another order, so it will not be the same bit for bit",
        )
    return checkpoint


def _start_weights(path: str) -> dict[str, Tensor] | None:
    return weights_of(load_model(path).model) if path else None
