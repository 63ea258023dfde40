"""A server whose translations are the texts spelled backwards, so that a test knows every answer."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import echo_engine
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.models.model_info import SourceLimit
from heedful.serving.app import make_app
from heedful.serving.auth import Keys
from heedful.serving.languages import Detector
from heedful.serving.limits import Limits
from heedful.serving.model_registry import Pair, Pairs
from heedful.serving.server import DrainingServer, make_server, open_socket
from heedful.serving.service import Service

detector = Detector()
KEY = "a-key-of-the-tests-0123456789"


def backwards(ids: list[int]) -> list[int]:
    return ids[:1] + ids[:0:-1]  # the first is the blank that a text begins with


class HeldEngine(echo_engine.EchoEngine):
    """An engine that searches only while its gate is open, and records the texts of each batch."""

    def __init__(self, change: Callable[[list[int]], list[int]] = backwards, *, seconds: float = 0.0) -> None:
        super().__init__(change)
        self.gate = threading.Event()
        self.gate.set()
        self.seconds = seconds
        self.batches: list[int] = []
        self.busy = 0.0  # seconds in which it searched

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        started = time.monotonic()
        self.batches.append(len(requests))
        assert self.gate.wait(30)
        time.sleep(self.seconds)
        found = super().search(requests, settings)
        self.busy += time.monotonic() - started
        return found


def echo_translator(engine: echo_engine.EchoEngine | None = None) -> Translator:
    return Translator(engine or HeldEngine(), echo_engine.tokenizers(), reach=SourceLimit(200))


def echo_pairs(engine: echo_engine.EchoEngine | None = None, *, n_threads: int = 2) -> Pairs:
    """Return an echo for English to French and back, and one for German to Chinese."""
    held = engine or HeldEngine()
    codes = [("en", "fr"), ("fr", "en"), ("de", "zh-Hans")]
    return Pairs([Pair(source, target, echo_translator(held), n_threads=n_threads) for source, target in codes])


def echo_service(
    engine: echo_engine.EchoEngine | None = None, *, keys: Keys | None = None, n_threads: int = 2, **limits: float
) -> Service:
    chosen = Limits(**limits)  # type: ignore[arg-type]
    return Service(echo_pairs(engine, n_threads=n_threads), detector, chosen, keys or Keys())


@contextlib.contextmanager
def running(service: Service) -> Iterator[tuple[str, DrainingServer]]:
    """Run the service behind a socket; yield its address and the server."""
    listening = threading.Event()
    ports: list[int] = []

    def on_listening(port: int) -> None:
        ports.append(port)
        listening.set()

    server = make_server(make_app(service), service, on_listening=on_listening)
    thread = threading.Thread(target=server.run, args=([open_socket("127.0.0.1", 0)],))
    thread.start()
    try:
        assert listening.wait(20)
        yield f"http://127.0.0.1:{ports[0]}", server
    finally:
        server.should_exit = True
        thread.join(40)
        assert not thread.is_alive()
