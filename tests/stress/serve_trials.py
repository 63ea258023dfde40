"""The long tests of a server (`make serve-test`): each trial prints its measurements and fails if a goal is missed.

    python tests/stress/serve_trials.py --json trials.json    all, about half an hour on two quiet cores
    python tests/stress/serve_trials.py --only overload soak  some of them
    python tests/stress/serve_trials.py --quick               a small run of each trial; a missed goal is no failure
    python tests/stress/serve_trials.py --only soak --minutes 60

Server and clients share the processor.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from heedful.data import demo_corpus
from heedful.decoding.translator import Translator
from heedful.serving.limits import Limits
from heedful.serving.service import WARM_UPS
from real_server import BASE, Running, make_folder, real_server
from serve_load import (
    TIE,
    Load,
    ask_until_stopped,
    closed_loop,
    differing,
    many_texts,
    narrowest_choice,
    random_text,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from bad_requests import BAD_MARKUP, TOO_MUCH
from server_process import BODY, HEAD, slow_clients, start_slow_server, stopped

HEALTH_MS, REFUSAL_MS, SHARE_OF_PEAK = 200.0, 50.0, 0.9
GROWTH_MB, GROWTH_MB_PER_MINUTE = 20.0, 1.0
SPEC_EXAMPLES = 1000  # of each path
TOKENS = {"max_len": 16}  # of a translation: a model that has learned nothing would never end


@dataclass
class How:
    """The size of a trial and its results."""

    quick: bool
    minutes: float
    figures: dict[str, object] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def n(self, full: int) -> int:
        return max(20, full // 50) if self.quick else full

    def note(self, **figures: object) -> None:
        self.figures |= figures
        print(
            "  " + ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in figures.items()), flush=True
        )

    def judge(self, name: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
        """Compare a time or size with its goal; with --quick, a missed goal is printed and does not fail."""
        is_reached = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        bound = f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"
        self.figures[name] = value
        print(
            f"  {name.replace('_', ' ')}: {value:.3g}, goal {bound}: {'reached' if is_reached else 'MISSED'}",
            flush=True,
        )
        if not is_reached:
            self.missed.append(name)
        assert is_reached or self.quick, f"{name} = {value:.3g}, goal {bound}"


def _shown(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def texts(how: How, folder: Path) -> None:
    """Random texts from a hundred clients: each answer equals the offline translation, or is tied with it."""
    make_folder(folder / "model")
    draw = random.Random(1)
    asked = [random_text(draw) for _ in range(how.n(10_000))]
    for engine in ("torch", "ctranslate2"):
        found = Translator.load(folder / "model", engine=engine).search(asked, beam=2)
        offline = dict(zip(asked, (best[0] for best in found), strict=True))
        with real_server(folder / "model", "--engine", engine, "--beam", "2") as server:
            started = time.monotonic()
            answers = asyncio.run(many_texts(server.url, asked, pair=("en", "de")))
            seconds = time.monotonic() - started
        judge = Translator.load(folder / "model", engine="torch")
        wrong = [one for one in differing(answers, offline) if narrowest_choice(judge, one[0], beam=2) > TIE]
        same = sum(said == offline[text].text for text, (said, _) in answers.items())
        how.note(**{engine: {"texts": len(answers), "seconds": round(seconds, 1), "same": same, "wrong": len(wrong)}})
        assert len(answers) == len(set(asked)) and wrong == []


@contextlib.contextmanager
def base_server(folder: Path, *options: str) -> Iterator[tuple[Running, list[str]]]:
    """Start a server with a model of base size and its default engine, and yield sentences to translate."""
    corpus = demo_corpus("en", "fr")
    sources, targets = [example.source for example in corpus.train], [example.target for example in corpus.train]
    make_folder(folder / "base", BASE, texts=(sources[:4000], targets[:4000]), vocab_size=2000)
    with real_server(folder / "base", *options) as server:
        wait_until_ready(server)
        yield server, list(dict.fromkeys(sources))[:5000]


def wait_until_ready(server: Running, *, seconds: float = 120.0) -> float:
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        with contextlib.suppress(OSError):
            if json.loads(server.get("/ready"))["status"] == "ready":
                return time.monotonic() - started
        time.sleep(0.05)
    raise AssertionError(f"not ready after {seconds:.0f} s")


def overload(how: How, folder: Path) -> None:
    """Three times the load that a model of base size can handle, for a minute."""
    seconds, n_clients = (4.0, 16) if how.quick else (60.0, 64)
    # With --quick the queue must be short, or it would never be full.
    with base_server(folder, *(["--set", "queue_requests=16"] if how.quick else [])) as (server, asked):
        asyncio.run(closed_loop(server.url, asked, TOKENS, seconds=seconds / 8, n=n_clients))
        peak = asyncio.run(closed_loop(server.url, asked, TOKENS, seconds=seconds / 3, n=n_clients))
        load = Load(server.url, 3 * peak, seconds, asked, "/api/v1/translate", TOKENS, pair=("en", "de"))
        asyncio.run(load.run())
        recovered = wait_until_ready(server)
        accepted, answered = server.number("accepted_total"), server.number("answered_total")
    rate = load.statuses[200] / load.seconds
    how.note(peak_per_second=peak, asked_per_second=3 * peak, did_per_second=rate, statuses=dict(load.statuses))
    how.note(answered_p50_ms=load.percentile(200, 0.5), answered_p99_ms=load.percentile(200, 0.99))
    how.note(refused_p50_ms=load.percentile(429, 0.5), refused_longest_ms=load.percentile(429, 1.0))
    how.note(accepted=accepted, answered=answered)
    assert set(load.statuses) <= {200, 429} and accepted == answered
    how.judge("refused_p99_ms", load.percentile(429, 0.99), at_most=REFUSAL_MS)
    how.judge("share_of_peak", rate / peak, at_least=SHARE_OF_PEAK)
    how.judge("ready_again_seconds", recovered, at_most=5.0)


def slow(how: How, folder: Path) -> None:
    """Clients that send a byte now and then are disconnected, and others are served meanwhile."""
    n = 100 if how.quick else 500
    default = Limits().receive_seconds
    seconds, times = slow_clients(n, receive_seconds=default)
    how.note(clients=n, receive_seconds=default, others_answered=len(times), others_longest_ms=1000.0 * max(times))
    how.judge("cut_after_seconds", seconds, at_most=10.0)


def stops(how: How, folder: Path) -> None:
    """SIGTERM under load: every accepted request is answered."""
    done = []
    for number in range(3 if how.quick else 20):
        with start_slow_server() as (process, url):
            stop = stopper(process.pid)
            statuses, broken = asyncio.run(ask_until_stopped(url, stop, after=0.5 + 0.05 * number))
            accepted, answered = stopped(process)
        done.append({"accepted": accepted, "answered": answered, **statuses, "unheard": broken})
        print(f"  {number + 1}: {done[-1]}", flush=True)
        assert accepted == answered and statuses[200] == accepted - WARM_UPS
    how.figures["stops"] = done
    how.note(
        times=len(done), accepted=sum(one["accepted"] for one in done), answered=sum(one["answered"] for one in done)
    )


def stopper(pid: int) -> Callable[[], None]:
    return lambda: os.kill(pid, signal.SIGTERM)


def bad_bytes(how: How, folder: Path) -> None:
    """Connections that send malformed requests, while /health answers."""
    make_folder(folder / "model")
    n = how.n(100_000)
    with real_server(folder / "model", "--engine", "torch") as server:
        wait_until_ready(server)
        with asking_health(server) as times:
            asyncio.run(send_bad_bytes(server, n))
        assert json.loads(server.get("/health")) == {"status": "ok"} and server.process.poll() is None
    how.note(bad_connections=n, health_answers=len(times), health_p50_ms=statistics.median(times))
    how.judge("health_longest_ms", max(times), at_most=HEALTH_MS)


async def send_bad_bytes(server: Running, n: int, *, n_clients: int = 50) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    left = n

    async def client(number: int) -> None:
        nonlocal left
        draw = random.Random(number)
        while left > 0:
            left -= 1
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(bad_request(draw))
                with contextlib.suppress(OSError, TimeoutError):
                    await asyncio.wait_for(reader.read(64), 0.05)  # some are never answered: the end is cut off
                writer.transport.abort()

    await asyncio.gather(*(client(number) for number in range(n_clients)))


@contextlib.contextmanager
def asking_health(server: Running) -> Iterator[list[float]]:
    """Ask /health during the context; yield the list of the answers' milliseconds."""
    times: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(0.05):
            started = time.monotonic()
            assert json.loads(server.get("/health")) == {"status": "ok"}
            times.append(1000.0 * (time.monotonic() - started))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield times
    finally:
        is_over.set()
        thread.join()


def bad_request(draw: random.Random) -> bytes:
    """Return a valid request with a random fault."""
    good = HEAD % len(BODY) + BODY
    at = draw.randrange(len(good))
    chunked = HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")
    return draw.choice(
        [
            lambda: good[:at],  # cut off
            lambda: good[:at] + draw.randbytes(draw.randint(1, 40)) + good[at:],
            lambda: good.replace(b"\r\n", b"\n"),
            lambda: good + good + good[:at],  # several at once
            lambda: chunked + b"5\r\nabc",
            lambda: chunked + b"1\r\nx\r\n" * draw.randint(1, 500),
            lambda: chunked + draw.randbytes(60),
            lambda: good.replace(b"Host: x", b"Host: x\r\nTransfer-Encoding: chunked"),
            lambda: good.replace(b"Host: x", b"X: " + b"y" * draw.choice([100, 20_000, 1_000_000])),
            lambda: good.replace(b"Content-Length: ", b"Content-Length: -"),
            lambda: good.replace(b"/translate", b"/" + draw.randbytes(30)),
            lambda: draw.randbytes(draw.randint(1, 2000)),
        ]
    )()


def memory_of(server: Running) -> float:
    """Return the resident memory of the process in megabytes."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def files_of(server: Running) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def too_much(how: How, folder: Path) -> None:
    """Requests beyond a limit are refused at once and leave no memory behind; bad HTML delays no other request."""
    make_folder(folder / "model")
    with real_server(folder / "model", "--engine", "torch") as server:
        wait_until_ready(server)
        for body in TOO_MUCH.values():
            refusal(server, body)
        before, times = memory_of(server), []
        for _ in range(how.n(2_000) // len(TOO_MUCH)):
            times += [refusal(server, body) for body in TOO_MUCH.values() if len(body) < 2_000_000]
            refusal(server, TOO_MUCH["10 MB body"])
        grown = memory_of(server) - before
        with asking_health(server) as healthy:
            for body in list(BAD_MARKUP.values()) * (1 if how.quick else 10):
                server.post("/translate", body.replace(b'"fr"', b'"de"'))
    how.judge("health_longest_ms", max(healthy), at_most=HEALTH_MS)
    how.note(refusals=len(times), refused_p99_ms=1000.0 * sorted(times)[len(times) * 99 // 100])
    how.judge("refused_p50_ms", 1000.0 * statistics.median(times), at_most=REFUSAL_MS)
    how.judge("megabytes_more", grown, at_most=GROWTH_MB)


def refusal(server: Running, body: bytes) -> float:
    """Return the seconds until a request is refused, perhaps before the server has read all of its body."""
    host, port = server.url.removeprefix("http://").split(":")
    started = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(HEAD.replace(b"/translate", b"/api/v1/translate") % len(body) + body)
        with contextlib.suppress(ConnectionError):
            answer = connection.recv(200)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), answer
    return time.monotonic() - started


def killed(how: How, folder: Path) -> None:
    """kill -9: waiting clients notice at once, and a new server is ready as soon as its model is loaded."""
    make_folder(folder / "model")
    started = time.monotonic()
    with real_server(folder / "model", "--engine", "torch") as server:
        wait_until_ready(server)
        loading = time.monotonic() - started
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as waiting:
            waiting.sendall(HEAD % len(BODY) + BODY[:-5])
            os.kill(server.process.pid, signal.SIGKILL)
            died = time.monotonic()
            with contextlib.suppress(ConnectionError):
                assert waiting.recv(100) == b""
            told = time.monotonic() - died
    again = time.monotonic()
    with real_server(folder / "model", "--engine", "torch") as server:
        wait_until_ready(server)
        ready = time.monotonic() - again
    how.judge("clients_know_after_seconds", told, at_most=1.0)
    how.judge("ready_again_seconds", ready, at_most=loading + 2.0)


def soak(how: How, folder: Path) -> None:
    """Minutes at four fifths of the highest load: memory does not grow, and no request fails."""
    minutes = 0.2 if how.quick else how.minutes
    with base_server(folder) as (server, asked):
        peak = asyncio.run(closed_loop(server.url, asked, TOKENS, seconds=2.0 if how.quick else 20.0, n=64))
        part = max(2.0, 6.0 * minutes)  # seconds: ten parts
        held, files = [], []
        for _ in range(10):
            load = Load(server.url, 0.8 * peak, part, asked, "/api/v1/translate", TOKENS, pair=("en", "de"))
            asyncio.run(load.run())
            assert set(load.statuses) == {200}, load.statuses
            time.sleep(0.5)  # connections close
            held.append(memory_of(server))
            files.append(files_of(server))
    slope = statistics.linear_regression([part / 60 * n for n in range(5, 10)], held[5:]).slope
    how.note(minutes=10 * part / 60, texts_per_second=0.8 * peak, megabytes=held, files=files)
    how.judge("megabytes_more_a_minute", slope, at_most=GROWTH_MB_PER_MINUTE)
    assert max(files[1:]) - min(files[1:]) <= 2, files


def spec(how: How, folder: Path) -> None:
    """Random valid and invalid requests from /spec: no failure, and no answer that /spec does not describe."""
    counts = folder / "counts.json"
    sizes = {"HEEDFUL_SPEC_EXAMPLES": str(how.n(SPEC_EXAMPLES)), "HEEDFUL_SPEC_COUNTS": str(counts)}
    tests = Path(__file__).parents[1] / "serving" / "test_openapi_random.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, env=os.environ | sizes, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    found = json.loads(counts.read_text(encoding="utf-8"))
    for path, statuses in found.items():
        how.note(**{path: {"requests": sum(statuses.values()), **statuses}})
    fewest = min(sum(one.values()) for one in found.values())
    how.judge("fewest_requests_of_a_path", fewest, at_least=how.n(SPEC_EXAMPLES))


TRIALS: dict[str, Callable[[How, Path], None]] = {
    "texts": texts,
    "overload": overload,
    "slow": slow,
    "stops": stops,
    "bad-bytes": bad_bytes,
    "too-much": too_much,
    "killed": killed,
    "soak": soak,
    "spec": spec,
}


def run(name: str, how: How) -> str | None:
    """Run a trial and return the reason of its failure, or None; the other trials run in any case."""
    print(f"{name}: {TRIALS[name].__doc__}", flush=True)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            TRIALS[name](how, Path(folder))
        return None
    except (AssertionError, OSError) as error:
        print(f"  FAILED: {error}", flush=True)
        return str(error) or type(error).__name__
    finally:
        how.figures["took_seconds"] = round(time.monotonic() - started, 1)
        print(f"  ({how.figures['took_seconds']:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak")
    parser.add_argument("--json", type=Path, help="write all figures here, after each trial")
    given = parser.parse_args()
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
    report: dict[str, dict[str, object]] = {}
    for name in given.only:
        how = How(given.quick, given.minutes)
        failed = run(name, how)
        report[name] = {"failed": failed, "missed": how.missed, **how.figures}
        if given.json is not None:
            text = json.dumps({"quick": given.quick, "cores": os.cpu_count(), "trials": report}, indent=1)
            given.json.write_text(text + "\n", encoding="utf-8")
    failed_ones = [name for name, one in report.items() if one["failed"] is not None]
    missed = [f"{name}: {goal}" for name, one in report.items() for goal in one["missed"]]  # type: ignore[attr-defined]
    print(f"failed: {', '.join(failed_ones)}" if failed_ones else "nothing failed")
    print(f"goals missed: {', '.join(missed)}" if missed else "all goals are reached")
    return 1 if failed_ones else 0


if __name__ == "__main__":
    sys.exit(main())
