"""The long tests of a server (`make serve-test`): each trial prints what it measured, and fails where a goal is missed.

    python tests/serve_trials.py                       all, about twenty minutes on two quiet cores
    python tests/serve_trials.py --only overload soak  some of them
    python tests/serve_trials.py --small               a little of everything: does it run? Goals are said, not judged
    python tests/serve_trials.py --only soak --minutes 60

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
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.data.demo import demo_corpus
from heedful.decoding.writing.translator import Translator
from real_server import BASE, Running, make_folder, real_server
from serve_load import Load, ask_until_stopped, closed_loop, differing, many_texts, random_text

sys.path.insert(0, str(Path(__file__).parent / "serving"))
from test_safety import TOO_MUCH
from test_server import BODY, HEAD, slow_clients, start_slow_server, stopped

HEALTH_MS, REFUSAL_MS, SHARE_OF_PEAK = 200.0, 50.0, 0.9
GROWTH_MB, GROWTH_MB_PER_MINUTE = 20.0, 1.0
TOKENS = {"max_len": 16}  # of a translation: a model that has learned nothing would never end


@dataclass(frozen=True)
class How:
    small: bool
    minutes: float

    def n(self, full: int) -> int:
        return max(20, full // 50) if self.small else full

    def judge(self, words: str, is_reached: bool) -> None:
        """A goal of time: on a machine with other work, or in a hurry, it is only said."""
        print(f"  {words}: {'reached' if is_reached else 'MISSED'}", flush=True)
        assert is_reached or self.small, words


def texts(how: How, folder: Path) -> None:
    """Random texts from a hundred clients: each answer is the offline one, or a tie."""
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
        wrong = differing(answers, offline)
        same = sum(said == offline[text].text for text, (said, _) in answers.items())
        print(f"  {engine}: {len(answers):,} texts in {seconds:.0f} s, {same:,} the same, {len(wrong)} wrong")
        assert len(answers) == len(set(asked)) and wrong == []


@contextlib.contextmanager
def base_server(folder: Path, *options: str) -> Iterator[tuple[Running, list[str]]]:
    """With a model of base size and sentences to ask it; the engine is what users get."""
    corpus = demo_corpus("en", "fr")
    sources, targets = [one.source for one in corpus.train], [one.target for one in corpus.train]
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
    """Three times what a model of base size can do, for a minute."""
    seconds = 4.0 if how.small else 60.0
    with base_server(folder) as (server, asked):
        asyncio.run(closed_loop(server.url, asked, TOKENS, seconds=seconds / 8, n=64))
        peak = asyncio.run(closed_loop(server.url, asked, TOKENS, seconds=seconds / 3, n=64))
        load = Load(server.url, 3 * peak, seconds, asked, "/api/v1/translate", TOKENS, pair=("en", "de"))
        asyncio.run(load.run())
        recovered = wait_until_ready(server)
        accepted, answered = server.number("accepted_total"), server.number("answered_total")
    rate, slow = load.statuses[200] / load.seconds, load.percentile(429, 0.99)
    print(f"  peak {peak:.1f} texts/s; asked {3 * peak:.1f}, did {rate:.1f}: {dict(load.statuses)}")
    print(
        f"  accepted answered within {load.percentile(200, 0.99):.0f} ms (99 of 100), ready again in {recovered:.1f} s"
    )
    assert set(load.statuses) <= {200, 429} and accepted == answered
    how.judge(f"refused within {slow:.0f} ms (99 of 100), goal {REFUSAL_MS:.0f}", slow <= REFUSAL_MS)
    how.judge(f"{rate / peak:.0%} of the peak, goal {SHARE_OF_PEAK:.0%}", rate >= SHARE_OF_PEAK * peak)
    how.judge(f"ready again after {recovered:.1f} s, goal 5", recovered <= 5.0)


def slow(how: How, folder: Path) -> None:
    """Clients that send a byte now and then are cut, and others are served meanwhile."""
    n = 100 if how.small else 500
    seconds = slow_clients(n, receive_seconds=8.0)
    how.judge(f"{n} slow clients cut after {seconds:.1f} s, goal 10", seconds <= 10.0)


def stops(how: How, folder: Path) -> None:
    """SIGTERM under load: whoever was accepted is answered."""
    for number in range(3 if how.small else 20):
        with start_slow_server() as (process, url):
            stop = stopper(process.pid)
            statuses, broken = asyncio.run(ask_until_stopped(url, stop, after=0.5 + 0.05 * number))
            accepted, answered = stopped(process)
        print(
            f"  {number + 1}: {accepted} accepted, {answered} answered, {dict(statuses)}, {broken} unheard", flush=True
        )
        assert accepted == answered and statuses[200] == accepted - 1  # the warm-up is not ours


def stopper(pid: int) -> Callable[[], None]:
    return lambda: os.kill(pid, signal.SIGTERM)


def bad_bytes(how: How, folder: Path) -> None:
    """Connections that send what no client should, while /health answers."""
    make_folder(folder / "model")
    n = how.n(100_000)
    with real_server(folder / "model", "--engine", "torch") as server:
        wait_until_ready(server)
        with asking_health(server) as times:
            asyncio.run(send_bad_bytes(server, n))
        assert json.loads(server.get("/health")) == {"status": "ok"} and server.process.poll() is None
    print(
        f"  {n:,} bad connections, {len(times)} answers of /health, half of them in {statistics.median(times):.0f} ms"
    )
    how.judge(f"all within {max(times):.0f} ms, goal {HEALTH_MS:.0f}", max(times) <= HEALTH_MS)


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
    """Milliseconds that each answer took while the context lasted."""
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
    """A good request with something wrong in it."""
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
    """Megabytes that the process holds."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def files_of(server: Running) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def too_much(how: How, folder: Path) -> None:
    """What exceeds a limit is refused at once, and leaves no memory behind."""
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
    middle = 1000.0 * statistics.median(times)
    how.judge(f"refused within {middle:.1f} ms (half of them), goal {REFUSAL_MS:.0f}", middle <= REFUSAL_MS)
    how.judge(f"{grown:.1f} MB more memory, goal {GROWTH_MB:.0f}", grown <= GROWTH_MB)


def refusal(server: Running, body: bytes) -> float:
    """How long it takes; a body that is much too large is not even read to its end."""
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
    """kill -9: whoever waits learns it at once, and a new server is ready as soon as its model is loaded."""
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
    how.judge(f"clients learn of a kill after {told:.2f} s, goal 1", told <= 1.0)
    how.judge(f"ready again {ready:.1f} s after the start, the first took {loading:.1f}", ready <= loading + 2.0)


def soak(how: How, folder: Path) -> None:
    """A long time at four fifths of what it can do: nothing grows, nothing fails."""
    minutes = 0.2 if how.small else how.minutes
    with base_server(folder) as (server, asked):
        peak = asyncio.run(closed_loop(server.url, asked, TOKENS, seconds=2.0 if how.small else 20.0, n=64))
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
    print(f"  {10 * part / 60:.1f} minutes at {0.8 * peak:.1f} texts/s: memory {held} MB, files {files}")
    how.judge(f"{slope:+.2f} MB a minute, goal {GROWTH_MB_PER_MINUTE:g}", slope <= GROWTH_MB_PER_MINUTE)
    assert max(files[1:]) - min(files[1:]) <= 2, files


TRIALS: dict[str, Callable[[How, Path], None]] = {
    "texts": texts,
    "overload": overload,
    "slow": slow,
    "stops": stops,
    "bad-bytes": bad_bytes,
    "too-much": too_much,
    "killed": killed,
    "soak": soak,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the soak")
    given = parser.parse_args()
    failed = []
    for name in given.only:
        print(f"{name}: {TRIALS[name].__doc__}", flush=True)
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                TRIALS[name](How(given.small, given.minutes), Path(folder))
        except AssertionError as error:  # the other trials are still worth their time
            print(f"  FAILED: {error}", flush=True)
            failed.append(name)
        print(f"  ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all goals are reached")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
