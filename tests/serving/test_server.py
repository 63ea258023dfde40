"""The server on a socket: slow clients, disconnecting clients, overload, and shutdown."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from echo_engine import model_folder
from echo_service import HeldEngine, echo_service, running
from heedful.serving import service as service_module
from heedful.serving.languages import Detected
from heedful.serving.limits import Limits
from heedful.serving.service import WARM_UPS
from serve_load import Load, ask_until_stopped, echoed, random_text
from server_process import BODY, ECHO, HEAD, connect, is_closed, slow_clients, start_slow_server, stopped, wait_until


def random_texts(n: int) -> list[str]:
    draw = random.Random(3)
    return [random_text(draw) for _ in range(n)]


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n", HEAD % 1000, HEAD % 1000 + BODY], ids=["nothing", "line", "head", "body"]
)
def test_slow_clients_are_disconnected_and_others_served(sent):
    assert 0.5 < slow_clients(50, receive_seconds=1.0, sent=sent)[0] < 4


def test_by_default_slow_clients_are_disconnected_within_ten_seconds():
    """The defaults leave two seconds of margin; `make serve-test` tests 500 clients."""
    assert Limits().receive_seconds <= 8.0


def test_a_connection_is_idle_only_after_an_answer():
    service = echo_service(receive_seconds=3.0, idle_seconds=1.0)
    with running(service) as (url, _), connect(url) as new, connect(url) as answered:
        answered.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answered.recv(10_000).startswith(b"HTTP/1.1 200")
        started = time.monotonic()
        wait_until(lambda: is_closed(answered))
        assert 0.5 < time.monotonic() - started < 2.5 and not is_closed(new)
        wait_until(lambda: is_closed(new))
        assert time.monotonic() - started > 2.5


def test_bad_bytes_do_no_harm():
    bad = [
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x" * 100_000,
        b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD % 3 + b"{}}" * 100,
    ]
    with running(echo_service()) as (url, _):
        for data in bad * 3:
            with connect(url) as connection:
                connection.sendall(data)
                connection.settimeout(5)
                answer = connection.recv(100)
                assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), (data[:60], answer)
            assert httpx.get(f"{url}/health").status_code == 200


def test_a_disconnected_client_frees_its_place():
    engine = HeldEngine()
    service = echo_service(engine, queue_requests=10, n_threads=1)
    with running(service) as (url, _):
        wait_until(lambda: service.is_warm)
        engine.gate.clear()
        connections = [connect(url) for _ in range(10)]
        for connection in connections:
            connection.sendall(HEAD % len(BODY) + BODY)
        wait_until(lambda: service.room.requests == 10)
        refused = httpx.post(f"{url}/translate", content=BODY, headers={"Content-Type": "application/json"})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        started = time.monotonic()
        for connection in connections:
            connection.close()
        wait_until(lambda: service.room.requests == 0)
        assert time.monotonic() - started < 0.25
        wait_until(lambda: service.metrics.gone == 10)
        engine.gate.set()


@pytest.mark.parametrize("refused", [True, False], ids=["no place", "a failure"])
def test_a_failed_warm_up_is_logged_and_repeated(refused, monkeypatch, caplog):
    monkeypatch.setattr(service_module, "FIRST_PAUSE", 0.05)

    class Broken(HeldEngine):
        works = refused

        def search(self, requests, settings, **_):
            if not self.works:
                raise RuntimeError("no memory")
            return super().search(requests, settings)

    engine = Broken()
    service = echo_service(engine)
    service.room.requests += service.room.max_requests if refused else 0
    with running(service) as (url, _):
        wait_until(lambda: len(caplog.records) >= 2)
        assert (
            "the first translation failed" in caplog.text and ("busy" if refused else "RuntimeError at") in caplog.text
        )
        assert httpx.get(f"{url}/ready").json() == {"status": "starting"}
        service.room.requests -= service.room.max_requests if refused else 0
        engine.works = True
        wait_until(lambda: service.is_warm)
        assert httpx.get(f"{url}/ready").json() == {"status": "ready"}


def test_one_connection_too_many_is_rejected_like_a_request():
    service = echo_service(connections=3)
    with running(service) as (url, _), contextlib.ExitStack() as stack:
        wait_until(lambda: service.is_warm)
        for _ in range(3):
            stack.enter_context(connect(url))
        wait_until(lambda: service.n_connections() == 3)
        refused = httpx.post(f"{url}/translate", content=BODY, headers={"Content-Type": "application/json"})
        assert refused.status_code == 429 and refused.json().keys() == {"error"}
        assert int(refused.headers["retry-after"]) >= 1 and refused.headers["connection"] == "close"
        assert refused.headers["x-content-type-options"] == "nosniff"
        wait_until(lambda: service.metrics.requests["other", 429] == 1)  # counted when it has gone
        wait_until(lambda: service.n_connections() == 3)
        stack.close()
        wait_until(lambda: service.n_connections() == 0)
        assert httpx.get(f"{url}/health").status_code == 200


def test_parsing_html_does_not_block_other_requests():
    """HTML is parsed in another thread, and only for requests with a place in the queue."""
    engine = HeldEngine()
    service = echo_service(engine, queue_requests=3)
    begun, go_on = threading.Event(), threading.Event()

    class SlowDetector:
        def choose(self, text, allowed):
            begun.set()
            assert go_on.wait(20)
            return Detected("en", 50.0)

    service.detector = SlowDetector()
    body = {"q": "<p>Hello <b>you</b></p>", "source": "auto", "target": "fr", "format": "html"}
    with running(service) as (url, _), ThreadPoolExecutor(3) as clients:
        wait_until(lambda: service.is_warm)
        answers = [clients.submit(httpx.post, f"{url}/translate", json=body) for _ in range(3)]
        assert begun.wait(20)
        wait_until(lambda: service.room.requests == 3)
        assert httpx.get(f"{url}/health").status_code == 200
        refused = httpx.post(f"{url}/translate", json=body)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        go_on.set()
        assert [answer.result().status_code for answer in answers] == [200] * 3
        assert service.room.requests == 0 and service.room.accepted == service.room.answered


def test_a_stream_without_a_reader_ends():
    engine = HeldEngine()
    service = echo_service(engine)
    with running(service) as (url, _):
        wait_until(lambda: service.is_warm)
        engine.gate.clear()
        head = HEAD.replace(b"/translate", b"/api/v1/translate/stream")
        with connect(url) as connection:
            connection.sendall(head % len(BODY) + BODY)
            wait_until(lambda: service.room.requests == 1)
        wait_until(lambda: service.room.requests == 0)
        engine.gate.set()


def test_overload():
    """All accepted requests are answered correctly; the others are rejected at once."""
    engine = HeldEngine(seconds=0.02)  # a batch; of one text each, for one thread: 50 a second
    service = echo_service(engine, queue_requests=16, batch_characters=1, n_threads=1)
    with running(service) as (url, _):
        load = asyncio.run(Load(url, 150.0, 3.0, random_texts(450), is_right=echoed, n_connections=60).run())
    assert set(load.statuses) == {200, 429}, load.statuses
    assert load.wrong == []
    warm_ups = 3 * WARM_UPS  # of three models
    assert service.room.accepted - warm_ups == service.room.answered - warm_ups == load.statuses[200]
    assert engine.busy > 0.6 * load.seconds  # whatever else the machine does, the engine is kept at work
    assert load.statuses[429] > load.statuses[200]
    assert load.percentile(429, 0.1) < 50  # ms; of all but the slowest in `make serve-test`, where nothing else runs


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_accepted_requests_finish(sent):
    with start_slow_server() as (process, url):
        statuses, broken = asyncio.run(ask_until_stopped(url, lambda: os.kill(process.pid, sent), after=1.0))
        accepted, answered = stopped(process)
    assert accepted == answered
    assert statuses[200] == accepted - WARM_UPS, (statuses, broken)
    assert set(statuses) <= {200, 429, 503}
    assert statuses[200] >= 5


def test_new_requests_are_rejected_while_it_drains():
    engine = HeldEngine()
    service = echo_service(engine)
    with running(service) as (url, server), connect(url) as waiting:
        wait_until(lambda: service.is_warm)
        engine.gate.clear()
        waiting.sendall(HEAD % len(BODY) + BODY)
        wait_until(lambda: service.room.requests == 1)
        server.handle_exit(signal.SIGTERM, None)
        time.sleep(0.5)  # it looks for the signal ten times a second
        refused = httpx.post(f"{url}/translate", content=BODY, headers={"Content-Type": "application/json"})
        assert (refused.status_code, httpx.get(f"{url}/ready").json()) == (503, {"status": "stopping"})
        assert httpx.get(f"{url}/health").status_code == 200
        engine.gate.set()
        assert waiting.recv(100).startswith(b"HTTP/1.1 200")


def test_the_command_rejects_unsafe_options(tmp_path: Path):
    model_folder(tmp_path / "model")

    def serve(*options: str) -> tuple[int, str]:
        command = [sys.executable, str(ECHO), "serve", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stderr

    model = f"en-fr={tmp_path / 'model'}"
    for options, words in (
        (["-m", model, "--host", "0.0.0.0"], "--no-key"),
        (["-m", str(tmp_path / "model")], "-m en-fr="),
        (["-m", model, "--no-key", "--api-key", "x" * 20], "--no-key"),
        (["-m", model, "--set", "text=3"], "texts"),
        (["-m", model, model], "two models"),
    ):
        code, output = serve(*options)
        assert code == 1 and words in output and "Traceback" not in output, output
    code, output = serve("--new-key", str(tmp_path / "keys"))
    assert code == 0 and (tmp_path / "keys").is_file()


def test_an_address_in_use_is_an_error(tmp_path: Path):
    model_folder(tmp_path / "model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, str(ECHO), "serve", "-m", f"en-fr={tmp_path / 'model'}", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr and "Traceback" not in done.stderr
