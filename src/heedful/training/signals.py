"""Signals: the first SIGINT, SIGTERM or SIGHUP finishes the step and saves a checkpoint, the second ends at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Abandoned(Exception):
    """A signal interrupted work that can be repeated later."""


class StopRequests:
    """The signal that a run received, if any."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._may_abandon = False

    def reason(self) -> str | None:
        """Return why the run must stop, or None."""
        return None if self._received is None else f"stopped by {signal.Signals(self._received).name}"

    @contextlib.contextmanager
    def abandoning(self) -> Iterator[None]:
        """Make signals raise Abandoned within the block, for long work that can be repeated."""
        self.abandon_if_asked()
        self._may_abandon = True
        try:
            yield
        finally:
            self._may_abandon = False

    def abandon_if_asked(self) -> None:
        """Raise Abandoned if a signal was received."""
        if self._received is not None:
            raise Abandoned

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            os._exit(128 + number)
        self._received = number
        if self._may_abandon:
            raise Abandoned


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Handle the signals within the block, and restore the old handlers after it.

    A signal that is ignored stays ignored: under `nohup` a run outlives its terminal. Outside of the main thread Python
    allows no handlers, so none are set.
    """
    requests = StopRequests()
    is_main = threading.current_thread() is threading.main_thread()
    handled = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN] if is_main else []
    before = {number: signal.signal(number, requests._receive) for number in handled}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
