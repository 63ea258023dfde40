"""Stopping when asked: the first SIGINT, SIGTERM or SIGHUP finishes the step and saves, the second ends at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Abandoned(Exception):
    """A stop was asked for in the middle of work that can be done again later."""


class StopRequests:
    """Which signal asked the run to stop, if one did."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._may_abandon = False

    def reason(self) -> str | None:
        return None if self._received is None else f"stopped by {signal.Signals(self._received).name}"

    @contextlib.contextmanager
    def abandoning(self) -> Iterator[None]:
        """Inside this block a signal raises Abandoned: the work is long, and nothing is lost by leaving it."""
        self.abandon_if_asked()
        self._may_abandon = True
        try:
            yield
        finally:
            self._may_abandon = False

    def abandon_if_asked(self) -> None:
        """Between two pieces of such work."""
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
    """Listen to the signals; afterwards the old handlers are back.

    Who ignores one keeps ignoring it (`nohup`: the run outlives its terminal). In another thread than the main one
    Python allows no handlers: there the program around decides.
    """
    requests = StopRequests()
    is_main = threading.current_thread() is threading.main_thread()
    heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN] if is_main else []
    before = {number: signal.signal(number, requests._receive) for number in heard}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
