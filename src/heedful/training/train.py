"""Which commit of heedful made a run, where it runs from a checkout: one version has many.

One run folder has one owner at a time.

`train`: from raw files to a run folder with a model in it; from a run folder, onwards.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from heedful import __version__
from heedful.atomic_io import clear_unfinished
from heedful.config import config_to_dict
from heedful.errors import UserError
from heedful.models.model_io import load_model
from heedful.training.checkpoint import Checkpoint, State, load_checkpoint, newest_checkpoint, versions
from heedful.training.distributed import World, barrier, broadcast_from_rank0, joined_world
from heedful.training.events import Listener, RunLog
from heedful.training.plan import choose_threads, make_plan
from heedful.training.resolve_settings import resolve_settings, with_metric
from heedful.training.run_config import (
    Content,
    Files,
    Paths,
    RunRecord,
    read_record,
    refuse_differences,
    say_languages,
    update_record,
    write_record,
)
from heedful.training.runtime import configure_runtime, peak_memory
from heedful.training.signals import Abandoned, StopRequests, stop_requests
from heedful.training.tasks.base import Preparation
from heedful.training.tasks.registry import task_of
from heedful.training.trainer import Emit, NotFinite, Session, fit, open_session

CHECKOUT = Path(__file__).parent.parent.parent.parent  # of heedful, if it is one


def commit_of(checkout: Path = CHECKOUT) -> str | None:
    """The commit, with "-dirty" where files were changed since; None where nobody can say."""
    if not (checkout / ".git").exists():  # git would look further up, and find the repository of somebody else
        return None
    command = ["git", "-C", str(checkout), "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found = subprocess.run(
            [*command, "--exclude=*"],  # no tag in its place
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},  # of another one
        )
    except (OSError, subprocess.SubprocessError):  # no git, or one that will not look into this folder
        return None
    return found.stdout.strip() or None


@contextlib.contextmanager
def lock_run_folder(folder: Path) -> Iterator[None]:
    """Own the folder until the end of the block or of the process: the lock goes with its holder, even a killed one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise UserError(f"{folder}: cannot hold a run: {error.strerror}. Choose another folder") from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"{folder}: another process ({file.read().strip() or 'unknown'}) trains in this folder; "
                "wait for it, stop it, or choose another folder"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        yield


OF_A_RUN = ("data", "tokenizers", "checkpoints", "best", "last", "average")  # folders that a run makes


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

    @property
    def left_at(self) -> str:
        """Where a run that was interrupted will go on."""
        return f"saved at step {self.step:,}" if self.step else "stopped before the first step"


def train(
    *,
    folder: str | Path,
    source: str | Path | Sequence[str | Path] = (),
    target: str | Path | Sequence[str | Path] = (),
    valid_source: str | Path | None = None,
    valid_target: str | Path | None = None,
    text: Paths = (),
    labels: Paths = (),
    tags: Paths = (),
    images: Paths = (),
    valid: str | Path | None = None,
    family: str | None = None,
    recipe: str | Path | None = None,
    overrides: Iterable[str] = (),
    resume: bool = False,
    init_from: str | Path | None = None,
    dry_run: bool = False,
    listeners: Sequence[Listener] = (),
) -> Run:
    """Train a model, or go on with a run (`resume`).

    From `source` and `target`, aligned text files; from `text`; from `labels`, files of text TAB label; from `tags`,
    words and their tags in columns; or from `images`. `valid` is of the same kind. `family` is seq2seq unless something
    says otherwise. `overrides` are "key=value" strings, as --set takes them. `listeners` are called with every event of
    the run. A dry run prepares everything, measures, and leaves nothing behind.
    """
    folder = Path(folder)
    given: dict[Content, Paths] = {"pairs": source, "text": text, "labels": labels, "tags": tags, "images": images}
    if valid and valid_source:
        raise UserError(f"--valid {valid} and --valid-source {valid_source}: only one of them can be used; give one")
    files = files_of(given, target, valid_source or valid, valid_target, init_from)
    # torchrun starts all ranks again when one has failed: that is a resume, although nobody typed it.
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    record = load_or_resolve_run(folder, files, family, recipe, list(overrides), resume=resume)
    with joined_world(record.settings.run.device) as world, contextlib.ExitStack() as stack:
        if dry_run:
            folder = Path(
                broadcast_from_rank0(world, stack.enter_context(tempfile.TemporaryDirectory(prefix="heedful-")))
            )
        if world.speaks:
            stack.enter_context(lock_run_folder(folder))
        log = stack.enter_context(RunLog(folder / "log.jsonl" if world.speaks else None, listeners))
        requests = stack.enter_context(stop_requests())
        run = configure_runtime(record.settings.run, world)
        record = replace(record, settings=replace(record.settings, run=run))
        return _train(folder, record, world, log.emit, requests, dry_run=dry_run)


def files_of(
    given: dict[Content, Paths],
    target: Paths,
    valid: str | Path | None,
    valid_target: str | Path | None,
    init_from: str | Path | None,
) -> Files:
    """The files of a run, all of one kind."""
    kinds: list[Content] = [kind for kind, paths in given.items() if paths]
    if len(kinds) > 1:
        raise UserError(f"a run learns from files of one kind, and {' and '.join(kinds)} were given")
    content: Content = kinds[0] if kinds else "pairs"
    if content != "pairs" and (target or valid_target):
        raise UserError(f"--target and --valid-target are of pairs, with --source, and {content} was given")
    return Files.of(given[content], target, valid, valid_target, init_from, content)


def load_or_resolve_run(
    folder: Path,
    files: Files,
    family: str | None,
    recipe: str | Path | None,
    overrides: list[str],
    *,
    resume: bool,
) -> RunRecord:
    """What this run is made of: from its folder when it goes on, otherwise from what was given."""
    exists = (folder / "settings.toml").exists()
    if exists and not resume:
        raise UserError(
            f"{folder}: there is a run in this folder already. Go on with it by --resume, or choose another folder"
        )
    if exists:
        saved = read_record(folder)
        wanted = saved.with_overrides(overrides if family is None else [*overrides, f"family={family}"])
        saved, wanted = _with_metric(saved), _with_metric(wanted)
        refuse_differences(folder, saved, wanted, files, recipe)
        return wanted
    if not files.source:
        what = (
            "nothing to resume, there is no settings.toml"
            if resume
            else "no training data: give --source and --target, or --text, --labels, --tags or --images"
        )
        raise UserError(f"{folder}: {what}")
    require_empty_run_folder(folder)
    return resolve_settings(files, family, recipe, overrides)


def _with_metric(record: RunRecord) -> RunRecord:
    """The same, "auto" being another name of a metric, which a run has from its beginning."""
    usual = record.settings.run.metric == "auto"
    return replace(record, settings=with_metric(record.settings)) if usual else record


def require_empty_run_folder(folder: Path) -> None:
    """What lies in a new run's folder is somebody's: a run would mix its own into it, or take it away when refused."""
    if found := [name for name in OF_A_RUN if (folder / name).exists()]:
        raise UserError(
            f"{folder}: holds {' and '.join(found)}, but no run (there is no settings.toml). A run makes folders of "
            f"these names, so it needs one of its own: {folder / 'run'}, say"
        )


def _train(folder: Path, record: RunRecord, world: World, emit: Emit, requests: StopRequests, *, dry_run: bool) -> Run:
    run = record.settings.run
    made_by = {"version": __version__} | ({"commit": commit} if world.speaks and (commit := commit_of()) else {})
    emit("start", **made_by, settings=config_to_dict(record.settings), versions=versions())
    emit("note", text=f"recipe: {record.recipe}")
    if record.files.content == "pairs":
        emit("note", text=say_languages(record))
    with cleanup_on_user_error(folder, world):
        try:
            prepared = _prepare(folder, record, world, emit, requests)
        except Abandoned:
            reason = f"{requests.reason()}, before the first step"
            emit("stop", reason=reason, step=0, seconds=0.0, tokens=0, peak_memory_bytes=peak_memory(world.device))
            return Run(folder, 0, reason, interrupted=True)
        checkpoint = _newest(folder, record, world, emit)
        record = read_record(folder)  # now with the fingerprints of the corpora
        session, state = open_session(
            folder,
            record,
            world,
            prepared,
            emit=emit,
            checkpoint=checkpoint,
            requests=requests,
            start=load_model(record.files.init_from) if record.files.init_from and checkpoint is None else None,
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
            emit("stop", reason=str(error), **_spent(session, state))
            raise
    emit("stop", reason=reason, **_spent(session, state))
    interrupted = requests.reason() is not None
    if not interrupted:
        emit("done", folders=session.finish(state), command=session.lesson.about.command)
    return Run(folder, state.step, reason, interrupted, state.scores)


@contextlib.contextmanager
def cleanup_on_user_error(folder: Path, world: World) -> Iterator[None]:
    """A new run that is refused before its first step (a bad line, a word misspelt) leaves its folder to the next."""
    is_new = world.speaks and not (folder / "settings.toml").exists()
    try:
        yield
    except UserError:
        if is_new:
            for name in ("data", "tokenizers"):  # which were not there: `require_empty_run_folder`
                shutil.rmtree(folder / name, ignore_errors=True)
            (folder / "settings.toml").unlink(missing_ok=True)
        raise


def _spent(session: Session, state: State) -> dict[str, int | float]:
    memory = peak_memory(session.world.device)
    return {"step": state.step, "seconds": state.seconds, "tokens": state.tokens, "peak_memory_bytes": memory}


def _prepare(folder: Path, record: RunRecord, world: World, emit: Emit, requests: StopRequests) -> Any:
    """Rank 0 prepares what is not there yet; then all ranks read it. A lone rank that is asked to stop does so between
    two stages: each leaves a finished result or none.
    """
    task = task_of(record.settings)

    def say(text: str) -> None:
        emit("note", text=text)
        if world.size == 1:
            requests.abandon_if_asked()

    if world.speaks:
        clear_unfinished(folder)
        clear_unfinished(folder / "checkpoints")
        ready = folder / "data" / "ready"
        if ready.exists():
            update_record(folder, record)
        else:
            write_record(folder, record)  # first, so that --resume works from here on
            start = record.files.init_from
            task.prepare(
                Preparation(
                    folder,
                    record.files,
                    record.settings,
                    tokenizers=load_model(start).tokenizers if start else None,
                    say=say,
                )
            )
            ready.touch()
    barrier(world)
    return task.reopen(folder, record.settings)


def _newest(folder: Path, record: RunRecord, world: World, emit: Emit) -> Checkpoint | None:
    """The newest whole checkpoint. Rank 0 looks for it, since it sets damaged ones aside; the others read the same."""
    if world.speaks:
        checkpoint = newest_checkpoint(folder / "checkpoints", lambda text: emit("warning", text=text))
        broadcast_from_rank0(world, None if checkpoint is None else checkpoint.folder.name)
    else:
        name = broadcast_from_rank0(world, None)
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
