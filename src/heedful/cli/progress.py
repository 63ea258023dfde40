"""How far a long pass has come, on standard error: a live bar on a terminal, elsewhere a line every half minute.

What draws the bar is imported when there is something to draw: a command that is soon over need not wait for it.
"""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 30.0  # seconds between lines where there is no terminal


class ProgressReporter:
    """Use as a context; `update` as often as you like. Nothing is shown of a pass that is soon over."""

    def __init__(self, *, unit: str = "pairs") -> None:
        self._unit = unit
        self._start = self._last = time.monotonic()
        self._what, self._before = "", 0
        self._bar: Progress | None = None
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> "ProgressReporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, what: str, done: int, share: float | None) -> None:
        """`done` units of `what`; `share` of the whole where it is known."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._start, self._last, self._before = what, now, now, done
            return
        rate = (done - self._before) / max(1e-9, now - self._start)
        text = f"{what}: {done:,} {self._unit}, {rate:,.0f} a second"
        if self._is_terminal:
            self._draw(text, share)
        elif now - self._last >= EVERY:
            self._last = now
            from heedful.formatting import duration

            left = f", {share:.0%}, {duration((now - self._start) * (1 - share) / share)} left" if share else ""
            print(f"{text}{left}", file=sys.stderr, flush=True)

    def _draw(self, text: str, share: float | None) -> None:
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
            self._bar.add_task(text, total=None)
        task = self._bar.tasks[0].id
        self._bar.update(task, description=text, completed=share or 0, total=None if share is None else 1.0)


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
