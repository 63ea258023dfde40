"""The application behind a socket: uvicorn, with a deadline for slow clients and an end that answers who waits."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful.errors import UserError
from heedful.serving.limits import Limits
from heedful.serving.service import Service

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # the code of a process that was told twice
LAST_ANSWERS = 0.5  # seconds to send what is answered, when the time to drain is over
LAST_THREADS = 0.2  # seconds for threads to end that have nothing more to do


class OneWrite:
    """A transport that sends the head of an answer together with its body: for short ones, half the calls and wake-ups.

    Only where the head says how long the body is: of a stream, the head goes out at once.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data:
            self._head = data
        elif data:
            self._transport.write(self._head + data)
            self._head = b""

    def flush(self) -> None:
        """What has no body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def deadline_protocol(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol, and a clock: a request must have arrived whole some seconds after its first byte.

    uvicorn waits for ever for the rest of a head or a body; a few hundred clients that send a byte now and then would
    keep everybody else out.
    """

    class DeadlineProtocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.transport = OneWrite(transport)  # type: ignore[assignment]
            self._begin()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.deadline is None:
                self._begin()
            super().data_received(data)
            self._end_if_whole()

        def on_response_complete(self) -> None:
            cast(OneWrite, self.transport).flush()
            super().on_response_complete()
            if self.conn.their_state is h11.SEND_BODY and self.deadline is None:
                self._begin()  # the next request was already on its way
            self._end_if_whole()

        def _begin(self) -> None:
            self.deadline = self.loop.call_later(limits.receive_seconds, self._cut)

        def _end(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def _end_if_whole(self) -> None:
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._end()

        def _cut(self) -> None:
            self.deadline = None
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
                with contextlib.suppress(h11.LocalProtocolError):
                    self.transport.write(self._timed_out())
            self.transport.close()

        def _timed_out(self) -> bytes:
            headers = [("connection", "close"), ("content-length", "0")]
            head = self.conn.send(h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"))
            return (head or b"") + (self.conn.send(h11.EndOfMessage()) or b"")

    return DeadlineProtocol


class DrainingServer(uvicorn.Server):
    """Stops in two steps: it refuses and answers who waits, then it closes; both within the time to drain.

    A second signal ends the process at once, whatever its threads compute.
    """

    def __init__(self, config: uvicorn.Config, service: Service, *, on_listening: Callable[[int], None]) -> None:
        super().__init__(config)
        self.service = service
        self._on_listening = on_listening
        self._stop_at: float | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_listening(self.servers[0].sockets[0].getsockname()[1])

    async def on_tick(self, counter: int) -> bool:
        stops = await super().on_tick(counter)
        if not stops:
            return False
        self.service.drain()
        now = time.monotonic()
        self._stop_at = self._stop_at or now + self.service.limits.drain_seconds
        return self.service.room.requests == 0 or self.force_exit or now >= self._stop_at

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        left = 0.0 if self._stop_at is None else self._stop_at - time.monotonic()
        self.config.timeout_graceful_shutdown = max(LAST_ANSWERS, left)  # type: ignore[assignment]
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            room = self.service.room
            with contextlib.suppress(OSError):  # bare, since whatever was interrupted may be printing
                os.write(2, f"heedful: stopped at once: {room.requests} requests not answered\n".encode())
            os._exit(INTERRUPTED)
        self.should_exit = True
        self.service.room.is_closed = True  # a plain assignment: this is a signal handler

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was obeyed is not sent once more: the end is an orderly one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def end_threads() -> None:
    """End the process if threads still compute: nobody waits for that any more, but Python would, at its end.

    A look cannot be stopped, nor can a batch in CTranslate2; the time to drain was too short for them.
    """
    until = time.monotonic() + LAST_THREADS
    threads = [one for one in threading.enumerate() if one is not threading.current_thread() and not one.daemon]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def open_socket(host: str, port: int) -> socket.socket:
    """Bound, and not yet listening; a UserError if that address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        raise UserError(f"cannot listen at {host} port {port}: {error.strerror or error}") from None
    return opened


def make_server(
    app: ASGIApp, service: Service, *, on_listening: Callable[[int], None] = lambda port: None
) -> DrainingServer:
    """Run it with the sockets that `open_socket` gives."""
    limits = service.limits
    config = uvicorn.Config(
        app,
        http=deadline_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # its lines have addresses and queries
        proxy_headers=False,
        server_header=False,
        limit_concurrency=None,  # guard.py refuses who is too many, as it refuses everything else
        timeout_keep_alive=max(1, round(limits.idle_seconds)),
        h11_max_incomplete_event_size=limits.header_bytes,
    )
    server = DrainingServer(config, service, on_listening=on_listening)
    service.n_connections = lambda: len(server.server_state.connections)
    return server
