"""What an event says, as label and text: the words that every view uses.

The live view on a terminal: below, a panel that is kept up to date; above it, what stays.

The panel never fills the width of the terminal: a line that does would be broken in two when the window gets narrower,
and the leftovers would stay on the screen.

A run as people see it: a live view on a terminal, plain lines elsewhere.
"""

import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
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
METRICS = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1", "bits": "bits per character"}  # the others as they are
PLACES = {"loss": 3, "perplexity": 1, "bits": 3}  # of numbers, after the point; usually 2


def metric_of(event: StartEvent) -> str:
    """What "better" means in this run."""
    return str(event["settings"].get("run", {}).get("metric", "bleu"))


def format_event(event: Event, metric: str) -> Iterator[tuple[str, str]]:
    """Label and text of each line; of a step none, since views differ in how they show progress."""
    if event["event"] == "start":
        yield "heedful", ", ".join(_about_start(event))
    elif event["event"] == "note":
        yield "", escape_control_chars(event["text"])
    elif event["event"] == "warning":
        yield "warning", escape_control_chars(event["text"])
    elif event["event"] == "plan":
        yield from zip(("plan", "", ""), _about_plan(event), strict=True)
    elif event["event"] == "validation":
        yield "validation", f"step {count(event['step'])} · {scores(event)}"
        yield "", f"{best(event, metric)} · took {duration(event['seconds'])}"
    elif event["event"] == "saved":
        words = f"step {count(event['step'])} · {size(event['bytes'])} in {duration(event['seconds'])}"
        yield "saved", f"{words} · {escape_control_chars(event['folder'])}"
    elif event["event"] == "stop":
        yield "stopped", escape_control_chars(event["reason"])
        spent = f"step {count(event['step'])} · {duration(event['seconds'])} of training"
        memory = f" · {size(event['peak_memory_bytes'])} of memory at most" if "peak_memory_bytes" in event else ""
        yield "", f"{spent} · {count(event['tokens'])} target tokens{memory}"
    elif event["event"] == "done":
        for i, (name, folder) in enumerate(event["folders"].items()):
            yield "" if i else "models", f"{name:<{LABEL_WIDTH}}{escape_control_chars(folder)}"
        command = event.get("command", "heedful translate -m {run} INPUT --output OUTPUT")
        runs = {str(Path(folder).parent): None for folder in event["folders"].values()}
        for run in runs:
            yield "next", command.replace("{run}", escape_control_chars(shlex.quote(run)))


def share_done(event: StepEvent) -> float:
    """How much of the run is behind: by time, since a run may end by the clock long before its last step."""
    left = event["seconds_left"]
    if left is None or event["seconds"] + left <= 0:
        return event["step"] / max(1, event["steps"])
    return event["seconds"] / (event["seconds"] + left)


def step_facts(event: StepEvent) -> list[str]:
    return [
        f"loss {number(event['loss'], 3)}",
        f"{count(event['tokens_per_second'])} tokens/s",
        f"lr {rate(event['lr'])}",
        f"gradient {number(event['grad_norm'], 2)}",
        f"epoch {count(event['epoch'] + 1)}",
        duration(event["seconds"]),
        f"{duration(event['seconds_left'])} left",
    ]


def scores(event: ValidationEvent) -> str:
    found = {"loss": event["loss"], "perplexity": event["perplexity"]}
    found |= {"bleu": event.get("bleu"), "chrf": event.get("chrf")} if "bleu" in event else {}
    found |= event.get("metrics", {})
    return " · ".join(
        f"{METRICS.get(name, name)} {number(value, PLACES.get(name, 2))}"
        for name, value in found.items()
        if name == "loss" or value is not None
    )


def best(event: ValidationEvent, metric: str) -> str:
    """Where the best score was, and how much patience is left for a better one."""
    if event["best"]:
        words = f"the best {METRICS.get(metric, metric)} so far"
    else:
        value = event["best_score"]
        shown = -value if value is not None and metric in LESS_IS_BETTER else value
        score = f"{METRICS.get(metric, metric)} {number(shown, PLACES.get(metric, 2))}"
        words = f"the best is {score} at step {count(event['best_step'])}"
    if event["patience"] is None:
        return words
    left = max(0, event["patience"] - event["validations_since_best"])
    return f"{words} · patience left: {left} of {event['patience']}"


def _about_start(event: StartEvent) -> Iterator[str]:
    yield event["version"]
    for name, version in event.get("versions", {}).items():
        if name != "heedful":
            yield f"{name} {version}"
    if precision := event["settings"].get("run", {}).get("precision"):
        yield str(precision)
    if (parameters := event.get("parameters")) is not None:
        yield f"{count(parameters)} parameters"


def _about_plan(event: PlanEvent) -> tuple[str, str, str]:
    speed = f"{count(event['tokens_per_second'])} target tokens/s measured"
    low, high = duration(event["seconds_low"]), duration(event["seconds_high"])
    return (
        f"{count(event['parameters'])} parameters · {count(event['steps'])} steps of about "
        f"{count(event['tokens_per_step'])} target tokens",
        f"{speed} · {size(event['peak_memory_bytes'])} of memory · {size(event['disk_bytes'])} of disk",
        f"about {low}" if low == high else f"between {low} and {high}",
    )


WIDTH = 79  # of the panel at most
BAR, CURVE = 30, 40  # columns of the bar and of the curve at most
DIM, CAME, WENT = "dim", "bold green", "dim red strike"
STYLES = {"warning": "bold yellow", "stopped": "bold"}


class LossCurve:
    """The losses of the whole run in a bounded list: when it is full, neighbours are averaged."""

    def __init__(self, capacity: int = 512) -> None:
        self.points: list[float] = []
        self._capacity = capacity
        self._per_point = 1
        self._waiting: list[float] = []

    def add(self, loss: float) -> None:
        self._waiting.append(loss)
        if len(self._waiting) < self._per_point:
            return
        self.points.append(sum(self._waiting) / len(self._waiting))
        self._waiting = []
        if len(self.points) >= self._capacity:
            self.points = [(a + b) / 2 for a, b in zip(self.points[::2], self.points[1::2], strict=True)]
            self._per_point *= 2


class LiveView:
    """Listens to a run's log and draws it with rich."""

    def __init__(
        self, console: Console, *, past: Iterable[Event] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._curve = LossCurve()
        self._metric = "bleu"
        self._step: StepEvent | None = None
        self._validation: ValidationEvent | None = None
        self._saved: SavedEvent | None = None
        self._live: Live | None = None
        for event in past:
            self._remember(event)
        self._step = None  # the curve and the best score of earlier sittings count, their speed does not

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
        """Leave the panel as it is, and give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self) -> Live:
        # What others print appears above the panel; but a standard output that goes into a file must go on doing so.
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
            self._metric = metric_of(event)
        elif event["event"] == "step":
            self._step = event
            if event["loss"] is not None and event["loss"] > 0:
                self._curve.add(math.log(event["loss"]))  # the first fall would flatten all that follows
        elif event["event"] == "validation":
            self._validation = event
        elif event["event"] == "saved":
            self._saved = event

    def _report(self, event: Event) -> Group:
        """What stays on the screen above the panel, with long texts in full."""
        lines = [(label, Text(text, STYLES.get(label, ""))) for label, text in format_event(event, self._metric)]
        if event["event"] == "validation":
            for sample in event["samples"]:
                lines += _sample(sample)
        return Group(*(_row(label, text) for label, text in lines))

    def panel(self) -> Group:
        """The state of the run, each fact on a line of its own that is never broken."""
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
        beat = "╸" if int(self._clock()) % 2 else "─"  # shows that the view is alive, between two steps that are logged
        bar = ("━" * n_full + beat)[:n_columns]
        return _labelled("step", Text.assemble((bar, "green"), ("─" * (n_columns - len(bar)), DIM), words))

    def _facts(self, event: StepEvent, width: int) -> Iterator[Text]:
        n_columns = max(1, min(CURVE, width - LABEL_WIDTH - 8))
        curve = f"  {sparkline(self._curve.points, n_columns)}"
        yield _labelled("loss", Text.assemble((number(event["loss"], 3), "bold"), (curve, "cyan")))
        speed = f"{count(event['tokens_per_second'])} tokens/s · lr {rate(event['lr'])}"
        yield _labelled("speed", Text(f"{speed} · gradient {number(event['grad_norm'], 2)}"))
        time_left = f"{duration(event['seconds'])} · {duration(event['seconds_left'])} left"
        yield _labelled("time", Text(f"{time_left} · epoch {count(event['epoch'] + 1)}"))
        if self._validation is not None:
            yield _labelled("validation", Text(scores(self._validation)))
            yield _labelled("", Text(best(self._validation, self._metric), "green" if self._validation["best"] else ""))
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
            model.append(piece.old, WENT)
            model.append("→" if piece.old else "", DIM)  # not by colour alone
        model.append(piece.new, "" if piece.old == piece.new else CAME)
    return [
        ("  source", Text(escape_control_chars(sample["source"]), DIM)),
        ("  reference", Text(escape_control_chars(sample["reference"]), DIM)),
        ("  model", model),
    ]


def _labelled(label: str, text: Text) -> Text:
    return Text.assemble((f"{label:<{LABEL_WIDTH}}", _label_style(label)), text)


def _row(label: str, text: Text) -> Table:
    """Label and text, where a long text goes on below itself."""
    row = Table.grid(padding=0)
    row.add_column(width=LABEL_WIDTH, no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(Text(label, _label_style(label)), text)
    return row


def _label_style(label: str) -> str:
    return STYLES.get(label, "cyan" if label.startswith(" ") else "bold cyan")


SECONDS_BETWEEN_LINES = 30.0


class View(Protocol):
    """A listener of the run's log."""

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


def make_view(stream: TextIO, *, past: Iterable[Event] = ()) -> View:
    """The live view where somebody is looking, plain lines elsewhere; `past` holds the events of earlier sittings."""
    # Not rich's own answer, which the environment can turn: FORCE_COLOR must not fill a log file with cursor movements.
    can_move = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    if can_move and (stream.encoding or "").lower().replace("-", "") == "utf8":
        return LiveView(Console(file=stream, highlight=False), past=past)
    return PlainView(stream)


class PlainView:
    """One line for each thing that happened; of the steps, one line every half minute."""

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, every: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._every = every
        self._last: float | None = None
        self._metric = "bleu"

    def __call__(self, event: Event) -> None:
        if event["event"] == "start":
            self._metric = metric_of(event)
        if event["event"] == "step":
            now = self._clock()
            if self._last is not None and now - self._last < self._every:
                return
            self._last = now
        for label, text in self._lines(event):
            self._say(f"{label:<{LABEL_WIDTH}}{text}".rstrip())
        self._stream.flush()

    def close(self) -> None:
        """Nothing is kept back, so there is nothing to do."""

    def _lines(self, event: Event) -> Iterator[tuple[str, str]]:
        if event["event"] == "step":
            yield "step", step_line(event)
            return
        yield from format_event(event, self._metric)
        if event["event"] == "validation":
            for sample in event["samples"]:
                yield "  source", escape_control_chars(sample["source"])
                yield "  reference", escape_control_chars(sample["reference"])
                before = None if sample["before"] is None else escape_control_chars(sample["before"])
                yield "  model", "".join(map(marked, word_diff(before, escape_control_chars(sample["hypothesis"]))))

    def _say(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"  # not every terminal can show every language
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def step_line(event: StepEvent) -> str:
    done = f"{count(event['step'])} of {count(event['steps'])} ({share(share_done(event))})"
    return " · ".join([done, *step_facts(event)])


def marked(piece: DiffSpan) -> str:
    """A change as {old→new}: {→new} came, {old→} went."""
    return piece.space + (piece.new if piece.old == piece.new else f"{{{piece.old}→{piece.new}}}")
