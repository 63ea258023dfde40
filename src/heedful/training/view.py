"""A run as people see it: a live view on a terminal, plain lines elsewhere."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TextIO

from rich.console import Console

from heedful.training.live import LiveView
from heedful.training.log import Event, StepEvent
from heedful.training.rows import LABEL_WIDTH, metric_of, rows, share_done, step_facts
from heedful.training.wording import Piece, changes, count, harmless, share

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
        yield from rows(event, self._metric)
        if event["event"] == "validation":
            for sample in event["samples"]:
                yield "  source", harmless(sample["source"])
                yield "  reference", harmless(sample["reference"])
                before = None if sample["before"] is None else harmless(sample["before"])
                yield "  model", "".join(map(marked, changes(before, harmless(sample["hypothesis"]))))

    def _say(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"  # not every terminal can show every language
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def step_line(event: StepEvent) -> str:
    done = f"{count(event['step'])} of {count(event['steps'])} ({share(share_done(event))})"
    return " · ".join([done, *step_facts(event)])


def marked(piece: Piece) -> str:
    """A change as {old→new}: {→new} came, {old→} went."""
    return piece.space + (piece.new if piece.old == piece.new else f"{{{piece.old}→{piece.new}}}")
