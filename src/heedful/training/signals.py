"""Stopping when asked: the first SIGINT, SIGTERM or SIGHUP finishes the step and saves, the second ends at once."""

import contextlib
import os
import signal
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
        if self._received is not None:
            raise Abandoned
        self._may_abandon = True
        try:
            yield
        finally:
            self._may_abandon = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            os._exit(128 + number)
        self._received = number
        if self._may_abandon:
            raise Abandoned


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Listen to the signals; afterwards the old handlers are back."""
    requests = StopRequests()
    before = {number: signal.signal(number, requests._receive) for number in SIGNALS}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
