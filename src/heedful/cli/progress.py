"""The progress of a long command on standard error: a bar in a terminal, elsewhere a line every half minute.

`rich`, which draws the bar, is imported with the first drawing, so that a short command does not wait for it.
"""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 30.0  # seconds between two lines where there is no terminal


class ProgressReporter:
    """Shows how much is done; use it as a context and call `update` as often as you like.

    The first `update` of an activity shows nothing, so that short work is not reported at all.
    """

    def __init__(self, *, unit: str = "pairs") -> None:
        self._unit = unit
        self._start = self._last_line = time.monotonic()
        self._activity, self._done_before = "", 0
        self._bar: Progress | None = None
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> "ProgressReporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, activity: str, done: int, share: float | None) -> None:
        """Report `done` units of an activity; `share` is the part of the whole, None if the whole is unknown."""
        now = time.monotonic()
        if activity != self._activity:
            self._activity, self._start, self._last_line, self._done_before = activity, now, now, done
            return
        rate = (done - self._done_before) / max(1e-9, now - self._start)
        text = f"{activity}: {done:,} {self._unit}, {rate:,.0f} a second"
        if self._is_terminal:
            self._draw(text, share)
        elif now - self._last_line >= EVERY:
            self._last_line = now
            from heedful.formatting import duration

            left = f", {share:.0%}, {duration((now - self._start) * (1 - share) / share)} left" if share else ""
            print(f"{text}{left}", file=sys.stderr, flush=True)

    def _draw(self, text: str, share: float | None) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.start()
            self._bar.add_task(text, total=None)
        task = self._bar.tasks[0].id
        self._bar.update(task, description=text, completed=share or 0, total=None if share is None else 1.0)


def _new_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
