"""`train`: from files to a run folder with trained models in it, and from a run folder onwards.

runs/en-de/  settings.toml  log.jsonl  lock  tokenizers/  data/  checkpoints/  best/  last/  average/
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
from heedful.training.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint, versions
from heedful.training.distributed import World, barrier, broadcast_from_rank0, joined_world
from heedful.training.events import Listener, RunLog
from heedful.training.plan import make_plan
from heedful.training.resolve_settings import resolve_settings, with_metric
from heedful.training.run_config import (
    Content,
    Files,
    Paths,
    RunRecord,
    describe_languages,
    read_record,
    refuse_differences,
    update_record,
    write_record,
)
from heedful.training.runtime import choose_threads, configure_runtime, peak_memory
from heedful.training.signals import Abandoned, StopRequests, stop_requests
from heedful.training.tasks.base import Preparation
from heedful.training.tasks.registry import task_of
from heedful.training.trainer import Emit, NotFinite, Trainer

CHECKOUT = Path(__file__).parent.parent.parent.parent  # of heedful's repository, if it runs from one
RUN_FOLDERS = ("data", "tokenizers", "checkpoints", "best", "last", "average")  # folders that a run makes


@dataclass(frozen=True)
class Run:
    """The result of `train`."""

    folder: Path
    step: int
    reason: str  # why training ended
    interrupted: bool = False  # whether a signal ended it
    scores: dict[str, float] = field(default_factory=dict)  # step -> validation score, more is better

    @property
    def best(self) -> Path:
        """The folder of the model with the best validation score."""
        return self.folder / "best"

    @property
    def left_at(self) -> str:
        """Where an interrupted run will be resumed, in words."""
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
    """Train a model, or resume a run.

    folder: the run folder, new or, with `resume`, an existing one.
    source, target: aligned text files; or `source` alone, files of pairs (.tsv, .jsonl, …).
    text: running text. labels: lines of text TAB label. tags: words and tags in columns. images: folders or arrays.
    valid_source, valid_target, valid: data of the same kind for validation; by default some of the data is held out.
    family: the model family; by default seq2seq, or that of `init_from`.
    recipe: the name of a built-in recipe or a TOML file; by default chosen by family and size of the data.
    overrides: settings as "key=value", as `--set` takes them.
    init_from: a run or model folder whose weights, shape and tokenizers the model starts from.
    dry_run: prepare, measure, and leave nothing behind.
    listeners: called with every event of the run's log.

    >>> from heedful import train
    >>> run = train(folder="runs/en-de", source="train.en", target="train.de")  # doctest: +SKIP
    >>> run.best  # doctest: +SKIP
    PosixPath('runs/en-de/best')
    """
    folder = Path(folder)
    paths_of: dict[Content, Paths] = {"pairs": source, "text": text, "labels": labels, "tags": tags, "images": images}
    if valid and valid_source:
        raise UserError(f"--valid {valid} and --valid-source {valid_source}: only one of them can be used; give one")
    files = files_of(paths_of, target, valid_source or valid, valid_target, init_from)
    # After the failure of one rank torchrun starts all ranks again, with the same command: they must resume.
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    record = load_or_resolve_run(folder, files, family, recipe, list(overrides), resume=resume)
    with joined_world(record.settings.run.device) as world, contextlib.ExitStack() as stack:
        if dry_run:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="heedful-"))
            folder = Path(broadcast_from_rank0(world, temporary))
        if world.is_rank_zero:
            stack.enter_context(lock_run_folder(folder))
        log = stack.enter_context(RunLog(folder / "log.jsonl" if world.is_rank_zero else None, listeners))
        requests = stack.enter_context(stop_requests())
        run = configure_runtime(record.settings.run, world)
        record = replace(record, settings=replace(record.settings, run=run))
        return _train(folder, record, world, log.emit, requests, dry_run=dry_run)


def files_of(
    paths_of: dict[Content, Paths],
    target: Paths,
    valid: str | Path | None,
    valid_target: str | Path | None,
    init_from: str | Path | None,
) -> Files:
    """Return the files of a run; raise a UserError if they are of several kinds."""
    kinds: list[Content] = [kind for kind, paths in paths_of.items() if paths]
    if len(kinds) > 1:
        raise UserError(f"a run learns from files of one kind, and {' and '.join(kinds)} were given")
    content: Content = kinds[0] if kinds else "pairs"
    if content != "pairs" and (target or valid_target):
        raise UserError(f"--target and --valid-target can be used only with --source, but {content} were given")
    return Files.of(paths_of[content], target, valid, valid_target, init_from, content)


def load_or_resolve_run(
    folder: Path,
    files: Files,
    family: str | None,
    recipe: str | Path | None,
    overrides: list[str],
    *,
    resume: bool,
) -> RunRecord:
    """Return the record of a run: read from its folder if it is resumed, otherwise made from the arguments."""
    exists = (folder / "settings.toml").exists()
    if exists and not resume:
        raise UserError(
            f"{folder}: there is a run in this folder already. Resume it with --resume, or choose another folder"
        )
    if exists:
        saved = read_record(folder)
        resumed = saved.with_overrides(overrides if family is None else [*overrides, f"family={family}"])
        saved, resumed = _with_metric(saved), _with_metric(resumed)
        refuse_differences(folder, saved, resumed, files, recipe)
        return resumed
    if not files.source:
        problem = (
            "nothing to resume, there is no settings.toml"
            if resume
            else "no training data: give --source and --target, or --text, --labels, --tags or --images"
        )
        raise UserError(f"{folder}: {problem}")
    require_empty_run_folder(folder)
    return resolve_settings(files, family, recipe, overrides)


def _with_metric(record: RunRecord) -> RunRecord:
    """Resolve run.metric = "auto", so that a resumed run compares equal."""
    is_auto = record.settings.run.metric == "auto"
    return replace(record, settings=with_metric(record.settings)) if is_auto else record


def require_empty_run_folder(folder: Path) -> None:
    """Reject a folder with files of another kind: a new run would mix its own with them, or delete them."""
    if names := [name for name in RUN_FOLDERS if (folder / name).exists()]:
        raise UserError(
            f"{folder}: holds {' and '.join(names)}, but no run (there is no settings.toml). A run makes folders of "
            f"these names, so give it another folder, for example {folder / 'run'}"
        )


@contextlib.contextmanager
def lock_run_folder(folder: Path) -> Iterator[None]:
    """Make the folder and lock it against other processes; the lock ends with this process, even a killed one."""
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


def _train(folder: Path, record: RunRecord, world: World, emit: Emit, requests: StopRequests, *, dry_run: bool) -> Run:
    """Prepare the data, build the trainer, train, and leave model folders."""
    run = record.settings.run
    commit = commit_of() if world.is_rank_zero else None
    emit(
        "start",
        version=__version__,
        **({"commit": commit} if commit else {}),
        settings=config_to_dict(record.settings),
        versions=versions(),
        counted=task_of(record.settings).counted,
    )
    emit("note", text=f"recipe: {record.recipe}")
    if record.files.content == "pairs":
        emit("note", text=describe_languages(record))
    with cleanup_on_user_error(folder, world):
        try:
            prepared, record = _prepare(folder, record, world, emit, requests)
        except Abandoned:
            reason = f"{requests.reason()}, before the first step"
            emit("stop", reason=reason, step=0, seconds=0.0, tokens=0, peak_memory_bytes=peak_memory(world.device))
            return Run(folder, 0, reason, interrupted=True)
        checkpoint = _newest_checkpoint(folder, record, world, emit)
        init_from = load_model(record.files.init_from) if record.files.init_from and checkpoint is None else None
        trainer = Trainer(
            folder, record, world, prepared, emit=emit, requests=requests, checkpoint=checkpoint, init_from=init_from
        )
    state = trainer.state
    if checkpoint is None:
        if run.threads is None and world.size == 1 and world.device.type == "cpu" and torch.get_num_threads() > 1:
            choose_threads(trainer)
        emit("plan", **make_plan(trainer))
    if dry_run:
        return Run(folder, state.step, "dry run: stopped after the plan")
    if checkpoint is not None and state.step >= run.steps:
        reason = f"already at step {state.step:,} of {run.steps:,}; to train longer, raise it with --set run.steps=…"
    else:
        try:
            reason = trainer.fit()
        except NotFinite as error:
            name = "not-finite.json" if world.is_rank_zero else f"not-finite-{world.rank}.json"
            (folder / name).write_text(json.dumps({"step": error.step, "examples": error.examples}) + "\n")
            emit("stop", reason=str(error), **_cost(trainer))
            raise
    emit("stop", reason=reason, **_cost(trainer))
    interrupted = requests.reason() is not None
    if not interrupted:
        emit("done", folders=trainer.finish(), command=trainer.task.description.command)
    return Run(folder, state.step, reason, interrupted, state.scores)


def _cost(trainer: Trainer) -> dict[str, int | float]:
    """Return the fields of a `stop` event about step, time, tokens and memory."""
    state, memory = trainer.state, peak_memory(trainer.world.device)
    return {"step": state.step, "seconds": state.seconds, "tokens": state.tokens, "peak_memory_bytes": memory}


@contextlib.contextmanager
def cleanup_on_user_error(folder: Path, world: World) -> Iterator[None]:
    """Delete what a new run made if a UserError ends it before its first step, so that the folder can be used again."""
    is_new = world.is_rank_zero and not (folder / "settings.toml").exists()
    try:
        yield
    except UserError:
        if is_new:
            for name in ("data", "tokenizers"):  # made by this run: see `require_empty_run_folder`
                shutil.rmtree(folder / name, ignore_errors=True)
            (folder / "settings.toml").unlink(missing_ok=True)
        raise


def _prepare(
    folder: Path, record: RunRecord, world: World, emit: Emit, requests: StopRequests
) -> tuple[Any, RunRecord]:
    """Prepare the data on rank 0 if that is not done yet, and read it on all ranks.

    Returns what the task's `reopen` gives, and the record, on rank 0 with the fingerprints of the corpora. If there is
    one rank and a signal came, it stops between two stages; each stage leaves a complete result or none.
    """
    task = task_of(record.settings)

    def notify(text: str) -> None:
        emit("note", text=text)
        if world.size == 1:
            requests.abandon_if_asked()

    if world.is_rank_zero:
        clear_unfinished(folder)
        clear_unfinished(folder / "checkpoints")
        ready = folder / "data" / "ready"
        if ready.exists():
            update_record(folder, record)
        else:
            record = write_record(folder, record)  # first, so that --resume works from here on
            init_from = record.files.init_from
            tokenizers = load_model(init_from).tokenizers if init_from else None
            task.prepare(Preparation(folder, record.files, record.settings, tokenizers=tokenizers, notify=notify))
            ready.touch()
    barrier(world)
    return task.reopen(folder, record.settings), record


def _newest_checkpoint(folder: Path, record: RunRecord, world: World, emit: Emit) -> Checkpoint | None:
    """Load the newest complete checkpoint; rank 0 finds it and renames damaged ones, the other ranks load it."""
    if world.is_rank_zero:
        checkpoint = newest_checkpoint(folder / "checkpoints", lambda text: emit("warning", text=text))
        broadcast_from_rank0(world, None if checkpoint is None else checkpoint.folder.name)
    else:
        name = broadcast_from_rank0(world, None)
        checkpoint = None if name is None else load_checkpoint(folder / "checkpoints" / name)
    if checkpoint is not None and record.settings.run.threads is None and world.size == 1:
        torch.set_num_threads(checkpoint.versions["threads"])  # another number rounds sums in another order
    if checkpoint is not None and checkpoint.versions["threads"] != versions()["threads"]:
        emit(
            "warning",
            text=f"this run was saved with {checkpoint.versions['threads']} threads and is resumed with "
            f"{versions()['threads']}: sums are rounded in another order, so it will not be the same bit for bit",
        )
    return checkpoint


def commit_of(checkout: Path = CHECKOUT) -> str | None:
    """Return the git commit of heedful's checkout, with "-dirty" if files were changed since; None if there is none."""
    if not (checkout / ".git").exists():  # git would look further up, and find another project's repository
        return None
    command = ["git", "-C", str(checkout), "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(
            [*command, "--exclude=*"],  # the commit itself, not a tag
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        )
    except (OSError, subprocess.SubprocessError):  # git is missing, or may not read this folder
        return None
    return result.stdout.strip() or None
