"""The events of a run: written to log.jsonl, one JSON object a line, and passed to listeners.

An event is a plain dict. "event" is its kind, "time" is in Unix seconds; the other fields depend on the kind and are
described by the classes below. Numbers that are not finite are null. To follow a run, on a screen, in TensorBoard or
from another program, write a listener or read the file.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, Literal, NotRequired, Protocol, TypedDict, cast, runtime_checkable

from heedful.errors import UserError

LOG = "log.jsonl"  # in the run folder
LESS_IS_BETTER = frozenset({"loss", "perplexity", "bits"})  # their scores are the negative values


class StartEvent(TypedDict):
    """A process starts to train: the first one of the run, or one that resumes it."""

    event: Literal["start"]
    time: float
    version: str  # of heedful
    commit: NotRequired[str]  # of heedful's checkout, if it runs from one; "…-dirty" if files were changed
    settings: dict[str, Any]  # everything in settings.toml
    counted: NotRequired[str]  # what speed and sizes of steps count: "target tokens", "images", …
    versions: NotRequired[dict[str, Any]]  # of torch, of Python, …
    command: NotRequired[str]
    parameters: NotRequired[int]
    machine: NotRequired[dict[str, Any]]


class NoteEvent(TypedDict):
    """Something that was chosen for the user, such as tokenizer, split or recipe, and why."""

    event: Literal["note"]
    time: float
    text: str


class PlanEvent(TypedDict):
    """What the run will take, measured on its first batches."""

    event: Literal["plan"]
    time: float
    parameters: int
    steps: int
    tokens_per_step: float | None
    tokens_per_second: float | None
    peak_memory_bytes: int | None
    disk_bytes: int | None
    seconds_low: float | None
    seconds_high: float | None
    patience: NotRequired[int | None]  # number of validations without a better score that end the run earlier
    validate_every: NotRequired[int]  # steps


class StepEvent(TypedDict):
    """Progress, every `run.log_every` steps; the loss and the speed are those since the last such event."""

    event: Literal["step"]
    time: float
    step: int
    steps: int  # in all
    loss: float | None  # mean of the target tokens
    tokens_per_second: float | None
    lr: float
    grad_norm: float | None  # before clipping
    epoch: int  # complete passes over the data
    seconds: float  # of training, over all starts of the run
    seconds_left: float | None
    tokens: int  # target tokens since the first step


class Sample(TypedDict):
    """A validation example, with the output of the model now and in the validation before."""

    source: str
    reference: str
    hypothesis: str
    before: str | None


class ValidationEvent(TypedDict):
    """The model was scored."""

    event: Literal["validation"]
    time: float
    step: int
    loss: float | None  # per target token, without smoothing
    perplexity: float | None
    bleu: NotRequired[float | None]
    chrf: NotRequired[float | None]
    metrics: NotRequired[dict[str, float | None]]  # further ones of the task, by name
    score: float | None  # the metric run.metric; negative if less is better
    best: bool  # whether this score is the best so far
    best_score: float | None
    best_step: int | None
    validations_since_best: int  # validations since the best one
    patience: int | None  # so many of them end the run
    seconds: float  # duration of the validation
    samples: list[Sample]


class SavedEvent(TypedDict):
    """A checkpoint was written."""

    event: Literal["saved"]
    time: float
    step: int
    folder: str
    bytes: int
    seconds: float


class WarningEvent(TypedDict):
    """Something went wrong, but training continues."""

    event: Literal["warning"]
    time: float
    text: str


class StopEvent(TypedDict):
    """A process stops training."""

    event: Literal["stop"]
    time: float
    reason: str
    step: int
    seconds: float
    tokens: int
    peak_memory_bytes: NotRequired[int]  # of one process, since its start


class DoneEvent(TypedDict):
    """The run is complete, and its model folders are written."""

    event: Literal["done"]
    time: float
    folders: dict[str, str]  # name -> path
    command: NotRequired[str]  # what to type next


Event = (
    StartEvent | NoteEvent | PlanEvent | StepEvent | ValidationEvent | SavedEvent | WarningEvent | StopEvent | DoneEvent
)

# kind -> its fields
KINDS: dict[str, type] = {
    "start": StartEvent,
    "note": NoteEvent,
    "plan": PlanEvent,
    "step": StepEvent,
    "validation": ValidationEvent,
    "saved": SavedEvent,
    "warning": WarningEvent,
    "stop": StopEvent,
    "done": DoneEvent,
}

Listener = Callable[[Event], None]
Notify = Callable[[str], None]  # emits a `note` event


@runtime_checkable
class Closeable(Protocol):
    """A listener that is closed at the end of the run."""

    def close(self) -> None:
        """Release files and screens."""


class RunLog:
    """Appends events to a file and passes them to listeners; a full disk or a failing listener does not stop training.

    Each event is written at once, so a kill truncates at most the last line. With path None, as on all ranks but rank
    0, events are checked and dropped.
    """

    def __init__(
        self, path: Path | None, listeners: Sequence[Listener] = (), *, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._listeners = list(listeners)
        self._clock = clock
        self._file: FileIO | None = None
        self._truncated = False  # whether the file ends in the middle of a line
        self._failed = False  # whether the last write failed
        if path is not None:
            self._file = _open_to_append(path)
            self._truncated = not _ends_with_a_line(path)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the listeners, then the file."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._close(listener)
        if self._file is not None:
            self._file.close()
            self._file = None

    def emit(self, kind: str, **values: object) -> None:
        """Write an event to the file, then pass it to the listeners in turn."""
        _check_fields(kind, values)
        if self._path is None:
            return
        event = {"event": kind, "time": round(self._clock(), 3), **{name: _strict(values[name]) for name in values}}
        problems = [*self._write(event), *self._pass_on(cast(Event, event))]
        for problem in problems:
            self.emit("warning", text=problem)

    def _write(self, event: Mapping[str, object]) -> list[str]:
        if self._file is None:
            return []
        line = (b"\n" if self._truncated else b"") + _as_line(event)
        try:
            while line:  # a nearly full disk may take only a part
                line = line[self._file.write(line) or 0 :]
        except OSError as error:
            was_known, self._failed, self._truncated = self._failed, True, True
            problem = f"{self._path}: cannot be written ({error.strerror}). Training continues, but its log has a gap"
            return [] if was_known else [problem]
        self._failed = self._truncated = False
        return []

    def _pass_on(self, event: Event) -> list[str]:
        problems = []
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception as error:  # a broken listener must not end a training run
                self._listeners.remove(listener)
                self._close(listener)
                problems.append(
                    f"{_name_of(listener)} failed and gets no more events; training continues. "
                    f"{type(error).__name__}: {error}"
                )
        return problems

    def _close(self, listener: object) -> None:
        if not isinstance(listener, Closeable):
            return
        try:
            listener.close()
        except Exception as error:
            self._write(
                {
                    "event": "warning",
                    "time": round(self._clock(), 3),
                    "text": f"{_name_of(listener)} could not be closed. {type(error).__name__}: {error}",
                }
            )


def read_log(path: Path) -> list[Event]:
    """Return the events of a log, oldest first; truncated lines are left out.

    >>> losses = [event["loss"] for event in read_log(run.folder / LOG) if event["event"] == "step"]  # doctest: +SKIP
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    events = []
    for line in data.split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") in KINDS:
            events.append(cast(Event, event))
    return events


def _check_fields(kind: str, values: Mapping[str, object]) -> None:
    assert kind in KINDS, f"unknown kind of event: {kind!r}"
    fields = KINDS[kind]
    required: frozenset[str] = fields.__required_keys__ - {"event", "time"}  # type: ignore[attr-defined]
    optional: frozenset[str] = fields.__optional_keys__  # type: ignore[attr-defined]
    missing, unknown = required - values.keys(), values.keys() - required - optional
    assert not missing and not unknown, f"{kind!r} event: missing {sorted(missing)}, unknown {sorted(unknown)}"


def _strict(value: object) -> object:
    """Convert a value to what JSON has: no NaN, no infinity, no path, no tuple."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _as_line(event: Mapping[str, object]) -> bytes:
    text = json.dumps(event, ensure_ascii=False, allow_nan=False)
    for separator in "\u0085\u2028\u2029":  # JSON allows them in strings, but many programs split lines there
        text = text.replace(separator, f"\\u{ord(separator):04x}")
    return text.encode("utf-8", "replace") + b"\n"  # a lone surrogate cannot be encoded


def _open_to_append(path: Path) -> FileIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(path, "a")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _ends_with_a_line(path: Path) -> bool:
    """Return whether the file is empty or ends with a line break; a killed process may have left half a line."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) in (b"", b"\n")


def _name_of(listener: object) -> str:
    return str(getattr(listener, "__name__", type(listener).__name__))
