"""A server of the page without a model, which records the page's requests."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from example_trace import Values, make_trace
from heedful.insight.html_export import PAGE

# As strict as a server can be: nothing inline, nothing from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
ANSWERS: Values = {
    "/languages": [
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "de", "name": "German", "targets": ["en", "de"]},
    ],
    "/frontend/settings": {
        "charLimit": 500,
        "keyRequired": False,
        "language": {"source": {"code": "en"}, "target": {"code": "de"}},
    },
}


def in_lines(values: Values) -> Values | None:
    """Split a text into pieces as a look does, one for each line."""
    lines = str(values["q"]).split("\n")
    if len(lines) == 1:
        return None
    return {
        "number": 0,
        "sources": lines,
        "targets": values["reference"].split("\n") if "reference" in values else None,
    }


@dataclass
class Stub:
    address: str
    asked: list[tuple[str, Values]] = field(default_factory=list)
    broken: bool = False  # every translation is refused
    busy: list[int] = field(default_factory=list)  # so many seconds to wait, each for one translation that is refused
    poison: str = ""  # a text that no translation takes
    settings: Values = field(default_factory=lambda: dict(ANSWERS["/frontend/settings"]))
    languages: object = field(default_factory=lambda: ANSWERS["/languages"])
    trace: Values | None = None  # what a look is answered with, in place of random numbers
    heard: Values = field(default_factory=dict)  # what is said about the language of a text
    gate: threading.Event = field(default_factory=threading.Event)  # translations are answered while it is set

    def __post_init__(self) -> None:
        self.gate.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back the answers to translations until the context ends."""
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    def wait_for(self, n_requests: int, *, seconds: float = 30.0) -> None:
        until = time.monotonic() + seconds
        while len(self.asked) < n_requests:
            assert time.monotonic() < until, f"{len(self.asked)} of {n_requests} requests"
            time.sleep(0.01)

    def answer(self, path: str, values: Values) -> tuple[int, object]:
        self.asked.append((path, values))
        if path == "/translate":
            self.gate.wait(60)
            if self.broken:
                return 429, {"error": "Slowdown: 20 per 1 minute"}
            if self.busy:
                return 503, {"error": "The queue is full", "wait": self.busy.pop(0)}
            q = values["q"]
            if self.poison and self.poison in q:
                return 400, {"error": "Invalid request: no such text"}
            text = [one[::-1] for one in q] if isinstance(q, list) else str(q)[::-1]
            other = "\n".join(f"other {line}" for line in text.split("\n")) if isinstance(text, str) else text
            return 200, {"translatedText": text, "alternatives": [other], **self.heard}
        if self.trace is not None:
            return 200, self.trace
        trace = make_trace() | {"pieces": in_lines(values)}
        if trace["pieces"] is not None:
            values = {**values, "q": trace["pieces"]["sources"][0]}
        trace["source"] = {**trace["source"], "text": values["q"]}
        if values.get("reference"):
            trace["target"] = {**trace["target"], "kind": "reference"}
        if values.get("prefix"):
            trace["target"] = {**trace["target"], "kind": "prefix", "n_forced": len(values["prefix"])}
        if values.get("without_heads") or values.get("masked_words"):
            changed = {"without_heads": values.get("without_heads", []), "masked_words": values.get("masked_words", [])}
            steps = [{"token": "▁Ein", "id": 10, "before": 0.9, "after": 0.2}]
            trace["changes"] = {**changed, "before": {"text": "Ein Hund.", "score": -1.0}, "steps": steps}
        return 200, trace


@contextmanager
def stub_server() -> Iterator[Stub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay: one for each of two dozen files was now and then reset
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path in ANSWERS:
                answer = stub.settings if self.path == "/frontend/settings" else stub.languages
                return self.reply(200, json.dumps(answer).encode(), "application/json")
            file = PAGE / (self.path.lstrip("/") or "index.html")
            if file.parent != PAGE or not file.is_file():
                return self.reply(404, b"", "text/plain")
            return self.reply(200, file.read_bytes(), KINDS[file.suffix])

        def do_POST(self) -> None:
            values = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = stub.answer(self.path, values)
            wait = answer.pop("wait", None) if status == 503 else None
            self.reply(status, json.dumps(answer).encode(), "application/json", wait)

        def reply(self, status: int, body: bytes, kind: str, wait: int | None = None) -> None:
            try:
                self.send_response(status)
                if wait is not None:
                    self.send_header("Retry-After", str(wait))
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", POLICY)
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the page has cancelled
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True  # each waits on a connection that the browser keeps

        def handle_error(self, request: object, address: object) -> None:
            """Ignore connections that a closing browser resets; raise all other errors."""
            if not isinstance(sys.exception(), OSError):
                super().handle_error(request, address)

    server = Server(("127.0.0.1", 0), Handler)
    stub = Stub(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield stub
    server.shutdown()
    thread.join()
    server.server_close()
