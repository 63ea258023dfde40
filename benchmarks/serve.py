"""What a server costs: `heedful serve` beside its own engine offline, and beside a server that does not batch.

    python benchmarks/serve.py --model en-de=runs/en-de --source test.en --json serve.json
    python benchmarks/serve.py --model en-de=MODEL --source FILE --quick                      # does it run?

Each part runs in a process of its own, and they take turns, round after round, with the client on the same cores:
- offline: `Translator.search` on all texts at once;
- heedful: clients that ask again as soon as they are answered, 32 texts or one in a request;
- one by one: a server with four threads that translates one text after another, as LibreTranslate does, on the same
  engine, asked in the same way.
Then heedful alone at fixed rates of one text a request, shares of what it did at most: how long an answer takes.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SHARES = (0.25, 0.5, 0.75, 0.9)  # of the highest throughput
CLIENTS = {32: 16, 1: 64}  # texts in a request -> clients
THREADS = 4  # of the server that translates one by one


class Connection:
    """As much of HTTP/1.1 as is needed: a client library would take more of the processor than the server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def translate(self, texts: list[str], pair: str) -> tuple[int, list[str]]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        source, target = pair.split("-", 1)
        body = json.dumps({"q": texts, "source": source, "target": target}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:-2])
        content = json.loads(await reader.readexactly(int(headers[b"content-length"])))
        return int(answer.split(b" ", 2)[1]), content.get("translatedText", [])

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


async def closed_loop(port: int, texts: list[str], pair: str, *, n: int, n_clients: int) -> tuple[float, list[str]]:
    """Texts a second when each client asks again at once; and the answers, in the order of the texts."""
    waiting = [(start, texts[start : start + n]) for start in range(0, len(texts), n)][::-1]
    answers: dict[int, list[str]] = {}

    async def client() -> None:
        connection = Connection(port)
        while waiting:
            start, part = waiting.pop()
            while (answer := await connection.translate(part, pair))[0] != 200:
                await asyncio.sleep(0.05)
            answers[start] = answer[1]
        connection.close()

    started = time.monotonic()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    rate = len(texts) / (time.monotonic() - started)
    return rate, [text for start in sorted(answers) for text in answers[start]]


async def open_loop(port: int, texts: list[str], pair: str, *, per_second: float, seconds: float) -> dict[str, float]:
    """Requests of one text come as chance has it, at a mean rate; how long their answers take, in milliseconds."""
    draw, times, refused, idle = random.Random(1), list[float](), 0, list[Connection]()

    async def ask(text: str) -> None:
        nonlocal refused
        connection = idle.pop() if idle else Connection(port)
        started = time.monotonic()
        status, _ = await connection.translate([text], pair)
        if status == 200:
            times.append(1000.0 * (time.monotonic() - started))
        else:
            refused += 1
        idle.append(connection)

    tasks, at, started = [], 0.0, time.monotonic()
    while at < seconds:
        await asyncio.sleep(max(0.0, started + at - time.monotonic()))
        tasks.append(asyncio.create_task(ask(draw.choice(texts))))
        at += draw.expovariate(per_second)
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return {
        "asked": len(tasks),
        "refused": refused,
        **{f"p{share}": _percentile(times, share) for share in (50, 95, 99)},
    }


def _percentile(times: list[float], share: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * share // 100)] if times else float("nan")


@dataclass(frozen=True)
class How:
    model: str
    pair: str
    engine: str
    compute: str
    beam: int

    @property
    def path(self) -> str:
        return self.model.partition("=")[2]


def offline(how: How, texts: list[str]) -> tuple[float, list[str]]:
    """Texts a second in a process of its own, at its second turn: the first loads and measures."""
    done = subprocess.run(
        [sys.executable, str(HERE / "serve.py"), "--child", "offline", *_arguments(how)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    return answer["rate"], answer["texts"]


def run_offline(how: How) -> None:
    from heedful.decoding.writing.translator import Translator

    translator = Translator.load(how.path, engine=how.engine, compute=how.compute)
    texts = json.load(sys.stdin)
    translator.search(texts, beam=how.beam)
    started = time.monotonic()
    found = translator.search(texts, beam=how.beam)
    rate = len(texts) / (time.monotonic() - started)
    json.dump({"rate": rate, "texts": [best[0].text for best in found]}, sys.stdout)


def run_one_by_one(how: How) -> None:
    """The server that is compared with: each request in one of four threads, its texts one after another."""
    import anyio
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from heedful.decoding.writing.translator import Translator

    translator = Translator.load(how.path, engine=how.engine, compute=how.compute)
    threads = anyio.CapacityLimiter(THREADS)

    async def translate(request: Request) -> JSONResponse:
        texts = (await request.json())["q"]
        one_by_one = lambda: [translator.translate(text, beam=how.beam) for text in texts]  # noqa: E731
        return JSONResponse({"translatedText": await anyio.to_thread.run_sync(one_by_one, limiter=threads)})

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            print(f"listening at http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/ ", flush=True)

    app = Starlette(routes=[Route("/translate", translate, methods=["POST"])])
    Server(uvicorn.Config(app, port=0, log_level="error", access_log=False)).run()


class Running:
    """A server in a process of its own; `port` once it listens."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def __enter__(self) -> int:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if "listening at http://127.0.0.1:" in line:
                return int(line.split("http://127.0.0.1:")[1].split("/")[0])
        raise SystemExit(said)

    def __exit__(self, *_: object) -> None:
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.wait(60)


def heedful_server(how: How) -> Running:
    options = ["--engine", how.engine, "--compute", how.compute, "--beam", str(how.beam), "--port", "0"]
    limits = ["--set", "queue_requests=512", "queue_characters=1000000"]
    return Running([sys.executable, "-m", "heedful", "serve", "-m", how.model, *options, *limits])


def one_by_one_server(how: How) -> Running:
    return Running([sys.executable, str(HERE / "serve.py"), "--child", "one-by-one", *_arguments(how)])


def _arguments(how: How) -> list[str]:
    return ["--model", how.model, "--engine", how.engine, "--compute", how.compute, "--beam", str(how.beam)]


def measure(how: How, texts: list[str], *, rounds: int, seconds: float) -> dict[str, object]:
    rates: dict[str, list[float]] = {}
    same = []
    for _ in range(rounds):
        rate, expected = offline(how, texts)
        rates.setdefault("offline", []).append(rate)
        for name, server in (("heedful", heedful_server(how)), ("one by one", one_by_one_server(how))):
            with server as port:
                asyncio.run(closed_loop(port, texts[:200], how.pair, n=8, n_clients=4))  # warm
                for n, n_clients in CLIENTS.items():
                    part = texts if name == "heedful" else texts[: max(200, len(texts) // 4)]
                    rate, found = asyncio.run(closed_loop(port, part, how.pair, n=n, n_clients=n_clients))
                    rates.setdefault(f"{name}, {n} a request", []).append(rate)
                    if name == "heedful":
                        same.append(sum(a == b for a, b in zip(found, expected, strict=True)) / len(texts))
    peak = statistics.median(rates["heedful, 1 a request"])
    loads = {}
    with heedful_server(how) as port:
        asyncio.run(closed_loop(port, texts[:200], how.pair, n=8, n_clients=4))
        for share in SHARES:
            loads[share] = asyncio.run(open_loop(port, texts, how.pair, per_second=share * peak, seconds=seconds))
    return {"rates": rates, "same": min(same), "loads": loads, "peak": peak}


def report(figures: dict) -> str:
    offline_rate = statistics.median(figures["rates"]["offline"])
    lines = ["| | texts/s | of offline |", "|---|---|---|"]
    for name, rates in figures["rates"].items():
        rate = statistics.median(rates)
        lines.append(f"| {name} | {rate:,.1f} | {rate / offline_rate:.0%} |")
    for n in CLIENTS:
        ours, theirs = (
            statistics.median(figures["rates"][f"{who}, {n} a request"]) for who in ("heedful", "one by one")
        )
        lines.append(f"\n{n} a request: {ours / theirs:.1f} times the server that does not batch")
    lines.append(f"\nanswers equal to the offline ones: {figures['same']:.2%}\n")
    lines += ["| load | requests/s | refused | p50 ms | p95 ms | p99 ms |", "|---|---|---|---|---|---|"]
    for share, load in figures["loads"].items():
        times = " | ".join(f"{load[name]:,.0f}" for name in ("p50", "p95", "p99"))
        lines.append(f"| {float(share):.0%} | {float(share) * figures['peak']:,.1f} | {load['refused']} | {times} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="SOURCE-TARGET=FOLDER")
    parser.add_argument("--source", type=Path, help="texts, one a line")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--compute", default="float32")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    parser.add_argument("--quick", action="store_true", help="as little as possible: only to see that it runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=["offline", "one-by-one"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    how = How(given.model, given.model.partition("=")[0], given.engine, given.compute, given.beam)
    if given.child is not None:
        {"offline": run_offline, "one-by-one": run_one_by_one}[given.child](how)
        return
    if given.source is None:
        parser.error("--source is missing")
    lines = [line.strip() for line in given.source.read_text(encoding="utf-8").split("\n") if line.strip()]
    texts = (lines * (given.texts // len(lines) + 1))[: 60 if given.quick else given.texts]
    # A text that stands there twice is searched for once when it is in one batch: each must be another one.
    texts = texts if given.quick else list(dict.fromkeys(texts))
    figures = measure(
        how, texts, rounds=1 if given.quick else given.rounds, seconds=1.0 if given.quick else given.seconds
    )
    figures["texts"] = len(texts)
    print(report(figures))
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
