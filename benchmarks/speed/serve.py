"""Compare `heedful serve` with its own engine offline, and with a server that does not batch across requests.

    python benchmarks/speed/serve.py --model en-de=runs/en-de --source test.en val.en --json serve.json  # ten minutes
    python benchmarks/speed/serve.py --model en-de=MODEL --source FILE --quick  # a short test that it runs

Each part runs in its own process, and the parts take turns, round after round, with the clients on the same cores:
- offline: `Translator.search` on all texts at once;
- heedful: clients that send the next request as soon as they have an answer, with 32 texts or one per request;
- one by one: a server with four threads that translates one text after another, as LibreTranslate does, on the same
  engine and with the same clients.
Then the latency of heedful alone is measured at fixed rates of one text per request, as shares of its highest rate.

The table also has the CPU time per text, which can be compared on a busy machine, too.
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
SHARES = (0.25, 0.5, 0.75, 0.9)  # of the highest rate; latency is measured at each
CLIENTS = {32: 16, 1: 64}  # texts per request -> clients, if there are enough texts
GOALS = {32: 0.9, 1: 0.6}  # texts per request -> share of the offline rate
THREADS = 4  # of the server that translates one by one
WARM_UP = 512  # texts of the first estimate; from 500 on the engine also chooses its threads and batch sizes


@dataclass(frozen=True)
class Setup:
    """The model and how it decodes, for all parts."""

    model: str  # SOURCE-TARGET=FOLDER
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
    """The measurements of one part over all rounds."""

    rates: list[float] = field(default_factory=list)  # texts per second
    processor: list[float] = field(default_factory=list)  # CPU milliseconds per text of the translating process
    others: list[float] = field(default_factory=list)  # cores used by other processes
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


class Running:
    """A child process in its own session, and the CPU time that it uses."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.reset_clock()
        return self

    def reset_clock(self) -> None:
        """Measure the CPU time of other processes from now on."""
        self._others, self._clock = cpu_of_others(self.process.pid), time.monotonic()

    def others(self) -> float:
        """Return the number of cores that other processes used since the last reset."""
        used = cpu_of_others(self.process.pid) - self._others
        return max(0.0, used) / max(0.01, time.monotonic() - self._clock)

    def seconds(self) -> float:
        """Return the CPU seconds of the program so far."""
        return sum(sum(map(int, stat[11:15])) for stat in processes(self.process.pid).values()) / TICKS

    def wait_for(self, text: str) -> str:
        """Return the first output line that contains the text; exit with the output if none does."""
        assert self.process.stdout is not None
        output = ""
        for line in self.process.stdout:
            output += line
            if text in line:
                return line
        raise SystemExit(output)

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

    def request(self, texts: list[str], pair: str, *, n: int, seconds: float | None = None) -> Closed:
        # Few enough clients that no text is requested twice at a time: a batch decodes equal texts only once.
        n_clients = min(CLIENTS[n], max(1, len(texts) // (2 * n)))
        return asyncio.run(closed_loop(self.port, texts, pair, n=n, n_clients=n_clients, seconds=seconds))

    def measure(self, part: Part, texts: list[str], pair: str, *, n: int, seconds: float | None = None) -> Closed:
        """Run a closed loop of clients and add its rate and costs to the part."""
        own = self.seconds()
        self.reset_clock()
        closed = self.request(texts, pair, n=n, seconds=seconds)
        part.rates.append(closed.rate)
        part.processor.append(1000.0 * (self.seconds() - own) / closed.answered)
        part.others.append(self.others())
        part.counts += closed.counts
        return closed


def offline(setup: Setup, texts: list[str], part: Part) -> list[str]:
    """Translate all texts in a child process, after a warm-up; add the rate to the part, return the translations."""
    with Running(setup.child("offline")) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(json.dumps(texts) + "\n")
        running.process.stdin.flush()
        running.wait_for("warm")
        running.reset_clock()
        result = json.loads(running.wait_for('"rate"'))
        part.others.append(running.others())
    part.rates.append(result["rate"])
    part.processor.append(result["processor"])
    translations: list[str] = result["texts"]
    return translations


def run_offline(setup: Setup) -> None:
    """Run in the child process of `offline`."""
    from heedful.decoding.translator import Translator

    translator = Translator.load(setup.model.partition("=")[2], engine=setup.engine, compute=setup.compute)
    texts = json.loads(sys.stdin.readline())
    translator.search(texts[:WARM_UP], beam=setup.beam)
    print("warm", flush=True)
    start, processor = time.monotonic(), time.process_time()
    results = translator.search(texts, beam=setup.beam)
    rate = len(texts) / (time.monotonic() - start)
    processor = 1000.0 * (time.process_time() - processor) / len(texts)
    best = [hypotheses[0].text for hypotheses in results]
    print(json.dumps({"rate": rate, "processor": processor, "texts": best}), flush=True)


def run_one_by_one(setup: Setup) -> None:
    """Run the server without batching: a thread translates the texts of a request one after another."""
    import anyio
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from heedful.decoding.translator import Translator

    translator = Translator.load(setup.model.partition("=")[2], engine=setup.engine, compute=setup.compute)
    threads = anyio.CapacityLimiter(THREADS)

    async def translate(request: Request) -> JSONResponse:
        texts = (await request.json())["q"]
        one_by_one = lambda: [translator.translate(text, beam=setup.beam) for text in texts]  # noqa: E731
        return JSONResponse({"translatedText": await anyio.to_thread.run_sync(one_by_one, limiter=threads)})

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            print(f"listening at http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/ ", flush=True)

    app = Starlette(routes=[Route("/translate", translate, methods=["POST"])])
    Announcing(uvicorn.Config(app, port=0, log_level="error", access_log=False)).run()


def heedful_server(setup: Setup) -> Server:
    """Start `heedful serve` with its default limits."""
    return Server([sys.executable, "-m", "heedful", "serve", "-m", setup.model, *setup.arguments(), "--port", "0"])


def measure_round(setup: Setup, texts: list[str], parts: dict[str, Part], seconds: float) -> float:
    """Measure every part once; return the share of heedful's answers that equal the offline translations."""
    expected = offline(setup, texts, parts["offline"])
    same = []
    with heedful_server(setup) as server:
        for n in CLIENTS:
            server.request(texts, setup.pair, n=n, seconds=seconds / 8)  # warm up
            closed = server.measure(parts[f"heedful, {n} per request"], texts, setup.pair, n=n)
            same.append(sum(a == b for a, b in zip(closed.translations, expected, strict=True)) / len(texts))
    with Server(setup.child("one-by-one")) as server:
        server.request(texts, setup.pair, n=1, seconds=seconds / 8)
        for n in CLIENTS:
            server.measure(parts[f"one by one, {n} per request"], texts, setup.pair, n=n, seconds=seconds / 2)
    return min(same)


@dataclass(frozen=True)
class Figures:
    texts: int
    same: float  # share of heedful's answers that equal the offline translations, the lowest of all rounds
    parts: dict[str, Part]
    loads: dict[str, dict[str, float]]  # share of the highest rate -> latencies


def measure(setup: Setup, texts: list[str], *, rounds: int, seconds: float) -> Figures:
    first = Part()
    offline(setup, texts[:WARM_UP], first)
    texts = texts[: max(64, round(first.rate * seconds))]
    print(f"about {first.rate:,.0f} texts/s offline: {len(texts):,} texts per turn", flush=True)
    names = [f"{server}, {n} per request" for server in ("heedful", "one by one") for n in CLIENTS]
    parts = {name: Part() for name in ("offline", *names)}
    same = [measure_round(setup, texts, parts, seconds) for _ in range(rounds)]
    loads = {}
    with heedful_server(setup) as server:
        server.request(texts, setup.pair, n=1, seconds=seconds / 8)
        for share in SHARES:
            rate = share * parts["heedful, 1 per request"].rate
            load = open_loop(server.port, texts, setup.pair, per_second=rate, seconds=seconds)
            loads[f"{share:g}"] = asyncio.run(load)
    return Figures(len(texts), min(same), parts, loads)


def report(figures: Figures) -> str:
    parts, offline_part = figures.parts, figures.parts["offline"]
    lines = [
        "| | texts/s | share of offline | CPU ms per text | refused | others, cores |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in parts.items():
        spread = f"{part.rate:,.1f} [{min(part.rates):,.1f}–{max(part.rates):,.1f}]"
        cost, others = statistics.median(part.processor), max(part.others)
        lines.append(
            f"| {name} | {spread} | {part.rate / offline_part.rate:.0%} | {cost:.2f} | "
            f"{part.counts['refused']} | {others:.2f} |"
        )
    lines.append("")
    for n, goal in GOALS.items():
        ours, theirs = parts[f"heedful, {n} per request"].rate, parts[f"one by one, {n} per request"].rate
        share = ours / offline_part.rate
        verdict = "reached" if share >= goal else "MISSED"
        lines.append(
            f"{n} per request: {share:.0%} of offline, goal {goal:.0%}: {verdict}; "
            f"{ours / theirs:.1f} times the server without batching"
        )
    lines.append(f"answers equal to the offline translations: {figures.same:.2%}\n")
    lines += ["| load | requests/s | refused | p50 ms | p95 ms | p99 ms |", "|---|---|---|---|---|---|"]
    for share, load in figures.loads.items():
        times = " | ".join(f"{load[name]:,.0f}" for name in ("p50", "p95", "p99"))
        lines.append(f"| {float(share):.0%} | {load['per_second']:,.1f} | {load['refused']:.0f} | {times} |")
    return "\n".join(lines)


def read_texts(paths: list[Path], max_texts: int) -> list[str]:
    """Return the distinct non-empty lines: a batch decodes equal texts only once."""
    lines = [line.strip() for path in paths for line in path.read_text(encoding="utf-8").split("\n")]
    return list(dict.fromkeys(filter(None, lines)))[:max_texts]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="languages and model folder, SOURCE-TARGET=FOLDER")
    parser.add_argument("--source", type=Path, nargs="+", default=[], help="text files, one text per line")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--compute", default="float32")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--texts", type=int, default=4000, help="use at most so many texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each offline turn and of each load")
    parser.add_argument("--quick", action="store_true", help="as little as possible: tests that it runs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--child", choices=["offline", "one-by-one"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.texts, options.rounds, options.seconds = min(options.texts, 256), 1, 2.0
    if options.child is None and not options.source:
        parser.error("--source is missing")
    return options


def main() -> None:
    options = parse()
    setup = Setup(options.model, options.engine, options.compute, options.beam)
    if options.child is not None:
        {"offline": run_offline, "one-by-one": run_one_by_one}[options.child](setup)
        return
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "busy": round(busy_cores(2.0), 2),
        "versions": {name: version(name) for name in ("heedful", "ctranslate2", "torch", "uvicorn", "starlette")},
    }
    print(f"{machine['cores']} cores, {machine['busy']} of them busy before the start", flush=True)
    start = time.monotonic()
    texts = read_texts(options.source, options.texts)
    figures = measure(setup, texts, rounds=options.rounds, seconds=options.seconds)
    print(report(figures))
    print(f"\n{(time.monotonic() - start) / 60:.1f} minutes")
    if options.json is not None:
        options.json.write_text(
            json.dumps(
                {"machine": machine, "setup": asdict(setup) | {"model": setup.pair}, **asdict(figures)}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
