"""What a server costs: `heedful serve` beside its own engine offline, and beside a server that does not batch.

    python benchmarks/speed/serve.py --model en-de=runs/en-de --source test.en val.en --json serve.json    # ten minutes
    python benchmarks/speed/serve.py --model en-de=MODEL --source FILE --quick  # does it run?

Each part runs in a process of its own, and they take turns, round after round, with the client on the same cores:
- offline: `Translator.search` on all texts at once;
- heedful: clients that ask again as soon as they are answered, 32 texts or one in a request;
- one by one: a server with four threads that translates one text after another, as LibreTranslate does, on the same
  engine, asked in the same way.
Then heedful alone at fixed rates of one text a request, shares of what it did at most: how long an answer takes.

Beside the clock it says how much processor time each took for a text: that can be compared on a busy machine, too.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Self

from serve_client import Closed, closed_loop, open_loop
from watch import TICKS, busy_cores, cpu_of_others, processes

HERE = Path(__file__).parent
SHARES = (0.25, 0.5, 0.75, 0.9)  # of the highest throughput
CLIENTS = {32: 16, 1: 64}  # texts in a request -> clients, if there are texts enough
GOALS = {32: 0.9, 1: 0.6}  # texts in a request -> share of the throughput offline
THREADS = 4  # of the server that translates one by one
FIRST = 512  # texts for a first look at the speed; from 500 on the engine also measures how to be fastest


@dataclass(frozen=True)
class How:
    model: str
    engine: str
    compute: str
    beam: int

    @property
    def pair(self) -> str:
        return self.model.partition("=")[0]

    def arguments(self) -> list[str]:
        return ["--engine", self.engine, "--compute", self.compute, "--beam", str(self.beam)]

    def child(self, name: str) -> list[str]:
        return [sys.executable, str(HERE / "serve.py"), "--child", name, "--model", self.model, *self.arguments()]


@dataclass
class Part:
    """One way to have texts translated, over all rounds."""

    rates: list[float] = field(default_factory=list)  # texts a second
    processor: list[float] = field(default_factory=list)  # milliseconds for a text, of the process that translates
    others: list[float] = field(default_factory=list)  # cores that were busy with something else
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


class Running:
    """A program in a session of its own, and what it takes of the processor."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.began()
        return self

    def began(self) -> None:
        """Count the processor time of others from here."""
        self._others, self._clock = cpu_of_others(self.process.pid), time.monotonic()

    def others(self) -> float:
        """Cores that were busy with something else."""
        used = cpu_of_others(self.process.pid) - self._others
        return max(0.0, used) / max(0.01, time.monotonic() - self._clock)

    def seconds(self) -> float:
        """Of the processor, so far."""
        return sum(sum(map(int, stat[11:15])) for stat in processes(self.process.pid).values()) / TICKS

    def wait_for(self, words: str) -> str:
        """The first line with these words."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if words in line:
                return line
        raise SystemExit(said)

    def __exit__(self, *_: object) -> None:
        os.kill(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


class Server(Running):
    def __enter__(self) -> Self:
        super().__enter__()
        self.port = int(self.wait_for("listening at http://127.0.0.1:").split("127.0.0.1:")[1].split("/")[0])
        return self

    def ask(self, texts: list[str], pair: str, *, n: int, seconds: float | None = None) -> Closed:
        # No text may be asked for twice at a time: what stands in a batch twice is searched for once.
        n_clients = min(CLIENTS[n], max(1, len(texts) // (2 * n)))
        return asyncio.run(closed_loop(self.port, texts, pair, n=n, n_clients=n_clients, seconds=seconds))

    def measure(self, part: Part, texts: list[str], pair: str, *, n: int, seconds: float | None = None) -> Closed:
        """A closed loop; its rate and costs go into the part."""
        own = self.seconds()
        self.began()
        closed = self.ask(texts, pair, n=n, seconds=seconds)
        part.rates.append(closed.rate)
        part.processor.append(1000.0 * (self.seconds() - own) / closed.answered)
        part.others.append(self.others())
        part.counts += closed.counts
        return closed


def offline(how: How, texts: list[str], part: Part) -> list[str]:
    """In a process of its own, after a first turn that loads and measures; its rate goes into the part."""
    with Running(how.child("offline")) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(json.dumps(texts) + "\n")
        running.process.stdin.flush()
        running.wait_for("warm")
        running.began()
        answer = json.loads(running.wait_for('"rate"'))
        part.others.append(running.others())
    part.rates.append(answer["rate"])
    part.processor.append(answer["processor"])
    found: list[str] = answer["texts"]
    return found


def run_offline(how: How) -> None:
    from heedful.decoding.translator import Translator

    translator = Translator.load(how.model.partition("=")[2], engine=how.engine, compute=how.compute)
    texts = json.loads(sys.stdin.readline())
    translator.search(texts[:FIRST], beam=how.beam)
    print("warm", flush=True)
    started, processor = time.monotonic(), time.process_time()
    found = translator.search(texts, beam=how.beam)
    rate = len(texts) / (time.monotonic() - started)
    processor = 1000.0 * (time.process_time() - processor) / len(texts)
    best = [one[0].text for one in found]
    print(json.dumps({"rate": rate, "processor": processor, "texts": best}), flush=True)


def run_one_by_one(how: How) -> None:
    """The server that is compared with: each request in one of four threads, its texts one after another."""
    import anyio
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from heedful.decoding.translator import Translator

    translator = Translator.load(how.model.partition("=")[2], engine=how.engine, compute=how.compute)
    threads = anyio.CapacityLimiter(THREADS)

    async def translate(request: Request) -> JSONResponse:
        texts = (await request.json())["q"]
        one_by_one = lambda: [translator.translate(text, beam=how.beam) for text in texts]  # noqa: E731
        return JSONResponse({"translatedText": await anyio.to_thread.run_sync(one_by_one, limiter=threads)})

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            print(f"listening at http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/ ", flush=True)

    app = Starlette(routes=[Route("/translate", translate, methods=["POST"])])
    Announcing(uvicorn.Config(app, port=0, log_level="error", access_log=False)).run()


def heedful_server(how: How) -> Server:
    """As users get it: no limit is raised."""
    return Server([sys.executable, "-m", "heedful", "serve", "-m", how.model, *how.arguments(), "--port", "0"])


def measure_round(how: How, texts: list[str], parts: dict[str, Part], seconds: float) -> float:
    """Each in its turn; the share of heedful's answers that are the offline ones."""
    expected = offline(how, texts, parts["offline"])
    same = []
    with heedful_server(how) as server:
        for n in CLIENTS:
            server.ask(texts, how.pair, n=n, seconds=seconds / 8)  # warm up
            closed = server.measure(parts[f"heedful, {n} a request"], texts, how.pair, n=n)
            same.append(sum(a == b for a, b in zip(closed.found, expected, strict=True)) / len(texts))
    with Server(how.child("one-by-one")) as server:
        server.ask(texts, how.pair, n=1, seconds=seconds / 8)
        for n in CLIENTS:
            server.measure(parts[f"one by one, {n} a request"], texts, how.pair, n=n, seconds=seconds / 2)
    return min(same)


@dataclass(frozen=True)
class Figures:
    texts: int
    same: float  # share of heedful's answers that are the offline ones, in the worst case
    parts: dict[str, Part]
    loads: dict[str, dict[str, float]]  # share of the highest throughput -> times


def measure(how: How, texts: list[str], *, rounds: int, seconds: float) -> Figures:
    first = Part()
    offline(how, texts[:FIRST], first)
    texts = texts[: max(64, round(first.rate * seconds))]
    print(f"about {first.rate:,.0f} texts/s offline: {len(texts):,} texts in each turn", flush=True)
    names = [f"{who}, {n} a request" for who in ("heedful", "one by one") for n in CLIENTS]
    parts = {name: Part() for name in ("offline", *names)}
    same = [measure_round(how, texts, parts, seconds) for _ in range(rounds)]
    loads = {}
    with heedful_server(how) as server:
        server.ask(texts, how.pair, n=1, seconds=seconds / 8)
        for share in SHARES:
            rate = share * parts["heedful, 1 a request"].rate
            load = open_loop(server.port, texts, how.pair, per_second=rate, seconds=seconds)
            loads[f"{share:g}"] = asyncio.run(load)
    return Figures(len(texts), min(same), parts, loads)


def report(figures: Figures) -> str:
    parts, offline_part = figures.parts, figures.parts["offline"]
    lines = ["| | texts/s | of offline | processor ms a text | refused | others, cores |", "|---|---|---|---|---|---|"]
    for name, part in parts.items():
        spread = f"{part.rate:,.1f} [{min(part.rates):,.1f}–{max(part.rates):,.1f}]"
        cost, others = statistics.median(part.processor), max(part.others)
        lines.append(
            f"| {name} | {spread} | {part.rate / offline_part.rate:.0%} | {cost:.2f} | "
            f"{part.counts['refused']} | {others:.2f} |"
        )
    lines.append("")
    for n, goal in GOALS.items():
        ours, theirs = parts[f"heedful, {n} a request"].rate, parts[f"one by one, {n} a request"].rate
        share = ours / offline_part.rate
        verdict = "reached" if share >= goal else "MISSED"
        lines.append(
            f"{n} a request: {share:.0%} of offline, goal {goal:.0%}: {verdict}; "
            f"{ours / theirs:.1f} times the server that does not batch"
        )
    lines.append(f"answers equal to the offline ones: {figures.same:.2%}\n")
    lines += ["| load | requests/s | refused | p50 ms | p95 ms | p99 ms |", "|---|---|---|---|---|---|"]
    for share, load in figures.loads.items():
        times = " | ".join(f"{load[name]:,.0f}" for name in ("p50", "p95", "p99"))
        lines.append(f"| {float(share):.0%} | {load['per_second']:,.1f} | {load['refused']:.0f} | {times} |")
    return "\n".join(lines)


def read_texts(paths: list[Path], most: int) -> list[str]:
    """Each once: what stands in a batch twice is searched for once."""
    lines = [line.strip() for path in paths for line in path.read_text(encoding="utf-8").split("\n")]
    return list(dict.fromkeys(filter(None, lines)))[:most]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="SOURCE-TARGET=FOLDER")
    parser.add_argument("--source", type=Path, nargs="+", default=[], help="texts, one a line")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--compute", default="float32")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--texts", type=int, default=4000, help="at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn offline, and of each load")
    parser.add_argument("--quick", action="store_true", help="as little as possible: only to see that it runs")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--child", choices=["offline", "one-by-one"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.texts, given.rounds, given.seconds = min(given.texts, 256), 1, 2.0
    if given.child is None and not given.source:
        parser.error("--source is missing")
    return given


def main() -> None:
    given = parse()
    how = How(given.model, given.engine, given.compute, given.beam)
    if given.child is not None:
        {"offline": run_offline, "one-by-one": run_one_by_one}[given.child](how)
        return
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "busy": round(busy_cores(2.0), 2),
        "versions": {name: version(name) for name in ("heedful", "ctranslate2", "torch", "uvicorn", "starlette")},
    }
    print(f"{machine['cores']} cores, {machine['busy']} of them busy before", flush=True)
    started = time.monotonic()
    texts = read_texts(given.source, given.texts)
    figures = measure(how, texts, rounds=given.rounds, seconds=given.seconds)
    print(report(figures))
    print(f"\n{(time.monotonic() - started) / 60:.1f} minutes")
    if given.json is not None:
        given.json.write_text(
            json.dumps({"machine": machine, "how": asdict(how) | {"model": how.pair}, **asdict(figures)}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
