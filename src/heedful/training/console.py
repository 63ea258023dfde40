"""The output of a run: a live view on a terminal, plain lines elsewhere.

Both views are listeners of the run's events, and share the texts that `format_event` makes.
"""

import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from heedful.formatting import (
    DiffSpan,
    count,
    duration,
    escape_control_chars,
    number,
    rate,
    share,
    size,
    sparkline,
    word_diff,
)
from heedful.training.events import (
    LESS_IS_BETTER,
    Event,
    PlanEvent,
    Sample,
    SavedEvent,
    StartEvent,
    StepEvent,
    ValidationEvent,
)

LABEL_WIDTH = 13
METRICS = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1", "bits": "bits per character"}  # other metrics keep their names
DIGITS = {"loss": 3, "perplexity": 1, "bits": 3}  # after the decimal point; other metrics have 2


@dataclass(frozen=True)
class Terms:
    """The words that depend on the run."""

    metric: str = "bleu"  # that the best model is chosen by
    counted: str = "target tokens"  # what speed and sizes of steps count

    @property
    def unit(self) -> str:
        """The last word of `counted`, for lines that must be short."""
        return self.counted.split()[-1]

    @classmethod
    def of(cls, event: StartEvent) -> "Terms":
        """Read them from the start of a run."""
        metric = event["settings"].get("run", {}).get("metric", cls.metric)
        return cls(str(metric), event.get("counted", cls.counted))


def format_event(event: Event, terms: Terms) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line about an event; nothing about a step, which each view shows differently."""
    if event["event"] == "start":
        yield "heedful", ", ".join(_start_facts(event))
    elif event["event"] == "note":
        yield "", escape_control_chars(event["text"])
    elif event["event"] == "warning":
        yield "warning", escape_control_chars(event["text"])
    elif event["event"] == "plan":
        yield from zip(("plan", "", ""), _plan_lines(event, terms), strict=True)
    elif event["event"] == "validation":
        yield "validation", f"step {count(event['step'])} · {scores(event)}"
        yield "", f"{best_so_far(event, terms.metric)} · took {duration(event['seconds'])}"
    elif event["event"] == "saved":
        words = f"step {count(event['step'])} · {size(event['bytes'])} in {duration(event['seconds'])}"
        yield "saved", f"{words} · {escape_control_chars(event['folder'])}"
    elif event["event"] == "stop":
        yield "stopped", escape_control_chars(event["reason"])
        spent = f"step {count(event['step'])} · {duration(event['seconds'])} of training"
        memory = f" · {size(event['peak_memory_bytes'])} of memory at most" if "peak_memory_bytes" in event else ""
        yield "", f"{spent} · {count(event['tokens'])} {terms.counted}{memory}"
    elif event["event"] == "done":
        for i, (name, folder) in enumerate(event["folders"].items()):
            yield "" if i else "models", f"{name:<{LABEL_WIDTH}}{escape_control_chars(folder)}"
        command = event.get("command", "heedful translate -m {run} INPUT --output OUTPUT")
        runs = {str(Path(folder).parent): None for folder in event["folders"].values()}
        for run in runs:
            yield "next", command.replace("{run}", escape_control_chars(shlex.quote(run)))


def share_done(event: StepEvent) -> float:
    """Return the share of the run that is done, by time: a time limit may end a run long before its last step."""
    left = event["seconds_left"]
    if left is None or event["seconds"] + left <= 0:
        return event["step"] / max(1, event["steps"])
    return event["seconds"] / (event["seconds"] + left)


def step_facts(event: StepEvent, terms: Terms) -> list[str]:
    """Return the parts of a progress line after the step."""
    return [
        f"loss {number(event['loss'], 3)}",
        f"{count(event['tokens_per_second'])} {terms.unit}/s",
        f"lr {rate(event['lr'])}",
        f"gradient {number(event['grad_norm'], 2)}",
        f"epoch {count(event['epoch'] + 1)}",
        duration(event["seconds"]),
        f"{duration(event['seconds_left'])} left",
    ]


def scores(event: ValidationEvent) -> str:
    """Return loss and metrics of a validation on one line."""
    values = {"loss": event["loss"], "perplexity": event["perplexity"]}
    values |= {"bleu": event.get("bleu"), "chrf": event.get("chrf")} if "bleu" in event else {}
    values |= event.get("metrics", {})
    return " · ".join(
        f"{METRICS.get(name, name)} {number(value, DIGITS.get(name, 2))}"
        for name, value in values.items()
        if name == "loss" or value is not None
    )


def best_so_far(event: ValidationEvent, metric: str) -> str:
    """Return which score is the best, and how many validations without a better one are left until the run stops."""
    if event["best"]:
        words = f"the best {METRICS.get(metric, metric)} so far"
    else:
        value = event["best_score"]
        shown = -value if value is not None and metric in LESS_IS_BETTER else value
        score = f"{METRICS.get(metric, metric)} {number(shown, DIGITS.get(metric, 2))}"
        words = f"the best is {score} at step {count(event['best_step'])}"
    if event["patience"] is None:
        return words
    left = max(0, event["patience"] - event["validations_since_best"])
    return f"{words} · patience left: {left} of {event['patience']}"


def _start_facts(event: StartEvent) -> Iterator[str]:
    yield event["version"]
    for name, version in event.get("versions", {}).items():
        if name != "heedful":
            yield f"{name} {version}"
    if precision := event["settings"].get("run", {}).get("precision"):
        yield str(precision)
    if (parameters := event.get("parameters")) is not None:
        yield f"{count(parameters)} parameters"


def _plan_lines(event: PlanEvent, terms: Terms) -> tuple[str, str, str]:
    speed = f"{count(event['tokens_per_second'])} {terms.counted}/s measured"
    low, high = duration(event["seconds_low"]), duration(event["seconds_high"])
    time_limit = f"at most {high}" if low == high else f"at most {low} to {high}"
    if (patience := event.get("patience")) is not None:
        every = count(event.get("validate_every"))
        time_limit += f"; ends earlier after {patience} validations (every {every} steps) without a better score"
    return (
        f"{count(event['parameters'])} parameters · {count(event['steps'])} steps of about "
        f"{count(event['tokens_per_step'])} {terms.counted}",
        f"{speed} · {size(event['peak_memory_bytes'])} of memory · {size(event['disk_bytes'])} of disk",
        time_limit,
    )


WIDTH = 79  # of the panel, at most; never the whole terminal, since narrowing the window would then break its lines
BAR, CURVE = 30, 40  # columns of the bar and of the curve, at most
DIM, ADDED, REMOVED = "dim", "bold green", "dim red strike"
STYLES = {"warning": "bold yellow", "stopped": "bold"}


class LossCurve:
    """The losses of the whole run as a bounded list of points; when it is full, pairs of points are averaged."""

    def __init__(self, capacity: int = 512) -> None:
        self.points: list[float] = []
        self._capacity = capacity
        self._per_point = 1
        self._waiting: list[float] = []

    def add(self, loss: float) -> None:
        """Add the loss of a progress event."""
        self._waiting.append(loss)
        if len(self._waiting) < self._per_point:
            return
        self.points.append(sum(self._waiting) / len(self._waiting))
        self._waiting = []
        if len(self.points) >= self._capacity:
            self.points = [(a + b) / 2 for a, b in zip(self.points[::2], self.points[1::2], strict=True)]
            self._per_point *= 2


class LiveView:
    """A listener that draws a run with rich: a panel that is kept up to date, and above it the lines that stay."""

    def __init__(
        self, console: Console, *, past: Iterable[Event] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._curve = LossCurve()
        self._terms = Terms()
        self._step: StepEvent | None = None
        self._validation: ValidationEvent | None = None
        self._saved: SavedEvent | None = None
        self._live: Live | None = None
        for event in past:
            self._remember(event)
        self._step = None  # curve and best score of earlier starts are shown, but not their speed

    def __call__(self, event: Event) -> None:
        self._remember(event)
        if event["event"] == "step" and self._live is None:
            self._live = self._start()
        if event["event"] == "stop":
            self.close()
            self._console.print()
        if event["event"] not in ("step", "saved"):  # these change only the panel
            self._console.print(self._report(event))
        if self._live is not None:
            self._live.refresh()

    def close(self) -> None:
        """Leave the panel as it is, and restore the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self) -> Live:
        # Other output appears above the panel, but standard output that is redirected to a file stays redirected.
        live = Live(
            get_renderable=self.panel,
            console=self._console,
            refresh_per_second=1,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
            vertical_overflow="crop",
        )
        live.start()
        return live

    def _remember(self, event: Event) -> None:
        if event["event"] == "start":
            self._terms = Terms.of(event)
        elif event["event"] == "step":
            self._step = event
            if event["loss"] is not None and event["loss"] > 0:
                self._curve.add(math.log(event["loss"]))  # a linear scale would flatten everything after the first fall
        elif event["event"] == "validation":
            self._validation = event
        elif event["event"] == "saved":
            self._saved = event

    def _report(self, event: Event) -> Group:
        """Return the lines about an event that stay above the panel, with long texts in full."""
        lines = [(label, Text(text, STYLES.get(label, ""))) for label, text in format_event(event, self._terms)]
        if event["event"] == "validation":
            for sample in event["samples"]:
                lines += _sample(sample)
        return Group(*(_row(label, text) for label, text in lines))

    def panel(self) -> Group:
        """Return the panel: the state of the run, one fact a line, truncated to the width."""
        width = min(WIDTH, self._console.width - 1)
        lines = [] if self._step is None else [self._progress(self._step, width), *self._facts(self._step, width)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Group(Text(""), *lines)

    def _progress(self, event: StepEvent, width: int) -> Text:
        done = share_done(event)
        words = f"  {count(event['step'])} of {count(event['steps'])} · {share(done)}"
        n_columns = max(0, min(BAR, width - LABEL_WIDTH - len(words)))
        n_full = int(min(1.0, done) * n_columns)
        beat = "╸" if int(self._clock()) % 2 else "─"  # blinks, so that one sees that the program runs
        bar = ("━" * n_full + beat)[:n_columns]
        return _labelled("step", Text.assemble((bar, "green"), ("─" * (n_columns - len(bar)), DIM), words))

    def _facts(self, event: StepEvent, width: int) -> Iterator[Text]:
        n_columns = max(1, min(CURVE, width - LABEL_WIDTH - 8))
        curve = f"  {sparkline(self._curve.points, n_columns)}"
        yield _labelled("loss", Text.assemble((number(event["loss"], 3), "bold"), (curve, "cyan")))
        speed = f"{count(event['tokens_per_second'])} {self._terms.unit}/s · lr {rate(event['lr'])}"
        yield _labelled("speed", Text(f"{speed} · gradient {number(event['grad_norm'], 2)}"))
        time_left = f"{duration(event['seconds'])} · {duration(event['seconds_left'])} left"
        yield _labelled("time", Text(f"{time_left} · epoch {count(event['epoch'] + 1)}"))
        if self._validation is not None:
            yield _labelled("validation", Text(scores(self._validation)))
            yield _labelled(
                "", Text(best_so_far(self._validation, self._terms.metric), "green" if self._validation["best"] else "")
            )
        if self._saved is not None:
            yield _labelled("saved", Text(f"step {count(self._saved['step'])} · {size(self._saved['bytes'])}"))
        if self._validation is not None:
            for sample in self._validation["samples"][:1]:
                yield from (_labelled(label, text) for label, text in _sample(sample))


def _sample(sample: Sample) -> list[tuple[str, Text]]:
    before = None if sample["before"] is None else escape_control_chars(sample["before"])
    model = Text()
    for piece in word_diff(before, escape_control_chars(sample["hypothesis"])):
        model.append(piece.space)
        if piece.old != piece.new:
            model.append(piece.old, REMOVED)
            model.append("→" if piece.old else "", DIM)  # not by colour alone
        model.append(piece.new, "" if piece.old == piece.new else ADDED)
    return [
        ("  source", Text(escape_control_chars(sample["source"]), DIM)),
        ("  reference", Text(escape_control_chars(sample["reference"]), DIM)),
        ("  model", model),
    ]


def _labelled(label: str, text: Text) -> Text:
    return Text.assemble((f"{label:<{LABEL_WIDTH}}", _label_style(label)), text)


def _row(label: str, text: Text) -> Table:
    """Return label and text side by side; a long text is wrapped within its column."""
    row = Table.grid(padding=0)
    row.add_column(width=LABEL_WIDTH, no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(Text(label, _label_style(label)), text)
    return row


def _label_style(label: str) -> str:
    return STYLES.get(label, "cyan" if label.startswith(" ") else "bold cyan")


SECONDS_BETWEEN_LINES = 30.0


class View(Protocol):
    """A listener that shows a run."""

    def __call__(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:
        """Restore the terminal."""


def make_view(stream: TextIO, *, past: Iterable[Event] = ()) -> View:
    """Return the live view for a terminal, plain lines for anything else; `past`: events of earlier starts of the run.

    >>> train(folder="runs/en-de", resume=True, listeners=[make_view(sys.stderr)])  # doctest: +SKIP
    """
    # rich's own check obeys FORCE_COLOR, which must not fill a log file with cursor movements.
    can_move = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    if can_move and (stream.encoding or "").lower().replace("-", "") == "utf8":
        return LiveView(Console(file=stream, highlight=False), past=past)
    return PlainView(stream)


class PlainView:
    """A listener that prints one line for each event; for steps, one line every half minute."""

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, every: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._every = every
        self._last: float | None = None
        self._terms = Terms()

    def __call__(self, event: Event) -> None:
        if event["event"] == "start":
            self._terms = Terms.of(event)
        if event["event"] == "step":
            now = self._clock()
            if self._last is not None and now - self._last < self._every:
                return
            self._last = now
        for label, text in self._lines(event):
            self._say(f"{label:<{LABEL_WIDTH}}{text}".rstrip())
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: every line is written at once."""

    def _lines(self, event: Event) -> Iterator[tuple[str, str]]:
        if event["event"] == "step":
            yield "step", step_line(event, self._terms)
            return
        yield from format_event(event, self._terms)
        if event["event"] == "validation":
            for sample in event["samples"]:
                yield "  source", escape_control_chars(sample["source"])
                yield "  reference", escape_control_chars(sample["reference"])
                before = None if sample["before"] is None else escape_control_chars(sample["before"])
                yield "  model", "".join(map(marked, word_diff(before, escape_control_chars(sample["hypothesis"]))))

    def _say(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"  # characters that the terminal cannot show are escaped
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def step_line(event: StepEvent, terms: Terms) -> str:
    """Return a progress line."""
    done = f"{count(event['step'])} of {count(event['steps'])} ({share(share_done(event))})"
    return " · ".join([done, *step_facts(event, terms)])


def marked(piece: DiffSpan) -> str:
    """Return a span of a diff: unchanged text as it is, a change as {old→new}, {→new} or {old→}."""
    return piece.space + (piece.new if piece.old == piece.new else f"{{{piece.old}→{piece.new}}}")
