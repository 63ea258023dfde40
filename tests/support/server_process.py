"""Servers for the tests of slow clients and of stopping: in this process, or `heedful serve` with an echo."""

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx

from echo_engine import model_folder
from echo_service import echo_service, running

ECHO = Path(__file__).with_name("echo_engine.py")
BODY = b'{"q": "Hello", "source": "en", "target": "fr"}'
HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while data := connection.recv(65_536):
            assert data.startswith(b"HTTP/1.1 408 "), data
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def slow_clients(
    n: int, *, receive_seconds: float, sent: bytes = HEAD % len(BODY) + BODY[:5]
) -> tuple[float, list[float]]:
    """Return the seconds until the server has closed all slow connections, and the times of other answers meanwhile."""
    times: list[float] = []
    with running(echo_service(receive_seconds=receive_seconds)) as (url, _):
        slow = [connect(url) for _ in range(n)]
        started = time.monotonic()
        for connection in slow:
            connection.sendall(sent)
        left = slow
        while left:
            assert time.monotonic() - started < 4 * receive_seconds
            asked = time.monotonic()
            answer = httpx.post(f"{url}/translate", content=BODY, headers={"Content-Type": "application/json"})
            times.append(time.monotonic() - asked)
            assert answer.json() == {"translatedText": "olleH"}
            left = [connection for connection in left if not is_closed(connection)]
            for connection in left:  # a byte now and then must not keep a connection open
                with contextlib.suppress(OSError):
                    connection.send(b"X" if sent else b"")
            time.sleep(receive_seconds / 10)
        for connection in slow:
            connection.close()
        return time.monotonic() - started, times


def start_slow_server() -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Start `heedful serve` with an engine that takes 0.2 s."""
    return start_server(ECHO, "--slow")


@contextlib.contextmanager
def start_server(program: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a program of the tests as `heedful serve`, and yield its process and address."""
    with tempfile.TemporaryDirectory() as folder:
        model_folder(Path(folder) / "model")
        served = ["serve", "-m", f"en-fr={folder}/model", "--port", "0"]
        command = [sys.executable, str(program), *served, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
        assert process.stderr is not None
        try:
            said = ""
            while not (found := re.search(r"listening at (http://\S+)/ ", said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            yield process, found[1]
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


def stopped(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Wait for the end of a server, and return the numbers of accepted and answered requests from its last message."""
    assert process.wait(40) == 0
    assert process.stderr is not None
    said = process.stderr.read()
    found = re.search(r"stopped: ([\d,]+) requests accepted, ([\d,]+) answered", said)
    assert found, said
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def wait_until(holds, *, seconds: float = 10.0) -> None:
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < seconds
        time.sleep(0.005)
