"""Shutdown of a server whose threads cannot be stopped: a look, a batch in CTranslate2."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import httpx2 as httpx
import pytest

from server_process import HEAD, connect, start_server, wait_until

STUCK = Path(__file__).parents[1] / "support" / "stuck_server.py"
BODY = b'{"q": "this text is too long for the engine", "source": "en", "target": "fr"}'
SLACK = 1.5  # seconds: a busy machine, and the end of a process


@contextmanager
def at_work(path: str, *options: str) -> Iterator["Popen[str]"]:
    """Start a server that has accepted a request which never finishes."""
    with start_server(STUCK, *options) as (process, url):
        wait_until(lambda: httpx.get(f"{url}/ready").status_code == 200)
        with connect(url) as waiting:
            waiting.sendall(HEAD.replace(b"/translate", path.encode()) % len(BODY) + BODY)
            wait_until(lambda: "heedful_queue_requests 1\n" in httpx.get(f"{url}/metrics").text)
            yield process


def output_of(process: "Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.read()


@pytest.mark.parametrize("path", ["/translate", "/api/v1/look"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(path, sent):
    with at_work(path) as process:
        os.kill(process.pid, sent)
        time.sleep(0.5)
        assert process.poll() is None  # it drains
        started = time.monotonic()
        os.kill(process.pid, sent)
        assert process.wait(20) == 130
        assert time.monotonic() - started < SLACK
        assert "1 requests not answered" in output_of(process)


@pytest.mark.parametrize("path", ["/translate", "/api/v1/look"])
def test_one_signal_ends_it_when_the_time_to_drain_is_over(path):
    with at_work(path, "--set", "drain_seconds=2") as process:
        started = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
        assert 2.0 <= time.monotonic() - started < 2.0 + SLACK
        assert "accepted" in output_of(process)
