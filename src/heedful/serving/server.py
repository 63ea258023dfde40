"""The uvicorn server: a deadline for slow clients, and a shutdown that answers accepted requests."""

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
INTERRUPTED = 130  # exit code after a second signal
LAST_ANSWERS = 0.5  # seconds to send finished responses after the time to drain
LAST_THREADS = 0.2  # seconds for idle threads to end


class OneWrite:
    """A transport that sends the head of a response together with its body, which halves the number of writes.

    It holds back only heads with a content-length; the head of a stream is sent at once.
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
        """Send a head that is not followed by a body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def deadline_protocol(limits: Limits) -> type[H11Protocol]:
    """Build uvicorn's protocol with a deadline: a request must be complete some seconds after its first byte.

    uvicorn waits without limit for the rest of a request, so a few hundred clients that send single bytes could occupy
    all connections.
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
                self._begin()  # the next request has begun already
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
    """A server that stops in two steps: it rejects new requests and answers accepted ones, then it closes.

    Both steps end within the time to drain. A second signal ends the process at once.
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
            with contextlib.suppress(OSError):  # os.write, because the signal may have interrupted a print
                os.write(2, f"heedful: stopped at once: {room.requests} requests not answered\n".encode())
            os._exit(INTERRUPTED)
        self.should_exit = True
        self.service.room.is_closed = True  # only an assignment is safe in a signal handler

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, but do not raise a handled signal again after shutdown."""
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
    """End the process if threads are still computing, because Python would wait for them at exit.

    A look and a batch in CTranslate2 cannot be interrupted and may outlast the time to drain.
    """
    until = time.monotonic() + LAST_THREADS
    current = threading.current_thread()
    threads = [thread for thread in threading.enumerate() if thread is not current and not thread.daemon]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def open_socket(host: str, port: int) -> socket.socket:
    """Bind a socket that does not listen yet; raise a UserError if the address is not available."""
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
    """Build the server of an application. Run it with sockets from `open_socket`."""
    limits = service.limits
    config = uvicorn.Config(
        app,
        http=deadline_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # its lines contain addresses and queries
        proxy_headers=False,
        server_header=False,
        limit_concurrency=None,  # the middleware limits connections, with an error like its others
        timeout_keep_alive=max(1, round(limits.idle_seconds)),
        h11_max_incomplete_event_size=limits.header_bytes,
    )
    server = DrainingServer(config, service, on_listening=on_listening)
    service.n_connections = lambda: len(server.server_state.connections)
    return server
