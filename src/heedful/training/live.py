"""The live view on a terminal: below, a panel that is kept up to date; above it, what stays.

The panel never fills the width of the terminal: a line that does would be broken in two when the window gets narrower,
and the leftovers would stay on the screen.
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from heedful.training.log import Event, Sample, SavedEvent, StepEvent, ValidationEvent
from heedful.training.rows import LABEL_WIDTH, best, metric_of, rows, scores, share_done
from heedful.training.wording import changes, count, duration, harmless, number, rate, share, size, sparkline

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
        lines = [(label, Text(text, STYLES.get(label, ""))) for label, text in rows(event, self._metric)]
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
    before = None if sample["before"] is None else harmless(sample["before"])
    model = Text()
    for piece in changes(before, harmless(sample["hypothesis"])):
        model.append(piece.space)
        if piece.old != piece.new:
            model.append(piece.old, WENT)
            model.append("→" if piece.old else "", DIM)  # not by colour alone
        model.append(piece.new, "" if piece.old == piece.new else CAME)
    return [
        ("  source", Text(harmless(sample["source"]), DIM)),
        ("  reference", Text(harmless(sample["reference"]), DIM)),
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
