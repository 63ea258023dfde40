"""Load for a server, and the long tests of `make serve-test`.

python tests/serve_load.py        10,000 texts, a minute of three times too much, 500 slow clients, 20 SIGTERMs
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGH.,;!?"


def random_text(draw: random.Random, *, longest: int = 60) -> str:
    """Of letters that the echo knows, without blanks at its ends."""
    return "".join(draw.choices(LETTERS, k=draw.randint(0, longest))).strip() + "z"


class Connection:
    """As much of HTTP/1.1 as a test needs, cheap enough to let the server have the processor."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._where = (host, int(port))
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, values: object) -> tuple[int, bytes]:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._where)
        body = json.dumps(values).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        assert self._reader is not None
        try:
            answer = await self._reader.readuntil(b"\r\n\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:-2])
            content = await self._reader.readexactly(int(headers[b"content-length"]))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            raise ConnectionError from None
        if headers.get(b"connection") == b"close":
            self.close()
        return int(answer.split(b" ", 2)[1]), content

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


@dataclass
class Load:
    """Requests at a fixed rate, whether or not answers come: what happened to them."""

    url: str
    per_second: float
    seconds: float
    n_connections: int = 64
    statuses: Counter[int] = field(default_factory=Counter)
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> "Load":
        draw, started = random.Random(3), time.monotonic()
        idle = [Connection(self.url) for _ in range(self.n_connections)]
        tasks = []
        for number in range(round(self.per_second * self.seconds)):
            await asyncio.sleep(max(0.0, started + number / self.per_second - time.monotonic()))
            connection = idle.pop() if idle else Connection(self.url)
            tasks.append(asyncio.create_task(self._ask(connection, random_text(draw), idle)))
        await asyncio.gather(*tasks)
        self.seconds = time.monotonic() - started
        for connection in idle:
            connection.close()
        return self

    async def _ask(self, connection: Connection, text: str, idle: list[Connection]) -> None:
        started = time.monotonic()
        try:
            status, content = await connection.post("/translate", {"q": text, "source": "en", "target": "fr"})
        except ConnectionError:  # an idle connection that the server had closed: once more
            connection = Connection(self.url)
            status, content = await connection.post("/translate", {"q": text, "source": "en", "target": "fr"})
        self.times[status].append(time.monotonic() - started)
        self.statuses[status] += 1
        if status == 200 and json.loads(content) != {"translatedText": text[::-1]}:
            self.wrong.append(text)
        idle.append(connection)


async def ask_until_stopped(
    url: str, stop: Callable[[], None], *, after: float, n_clients: int = 24
) -> tuple[Counter[int], int]:
    """Clients that ask without pause until the server is gone; what they were told, and how many got no answer."""
    statuses: Counter[int] = Counter()
    broken = 0

    async def client(number: int) -> None:
        nonlocal broken
        draw = random.Random(number)
        while True:
            connection = Connection(url)
            try:
                status, _ = await connection.post(
                    "/translate", {"q": random_text(draw), "source": "en", "target": "fr"}
                )
            except ConnectionRefusedError:
                return
            except OSError:
                broken += 1
                return
            finally:
                connection.close()
            statuses[status] += 1
            if status != 200:
                await asyncio.sleep(0.05)

    clients = [asyncio.create_task(client(number)) for number in range(n_clients)]
    await asyncio.sleep(after)
    stop()
    await asyncio.wait_for(asyncio.gather(*clients), 40)
    return statuses, broken


async def many_texts(url: str, *, n_texts: int, n_clients: int = 100) -> int:
    """Random texts from many clients, in requests of one to eight; how many had the right answer."""
    right = 0
    left = n_texts

    async def client(number: int) -> None:
        nonlocal right, left
        draw, connection = random.Random(number), Connection(url)
        while left > 0:
            texts = [random_text(draw, longest=200) for _ in range(min(left, draw.randint(1, 8)))]
            left -= len(texts)
            body = {"q": texts, "source": "en", "target": "fr"}
            while (answer := await connection.post("/translate", body))[0] == 429:
                await asyncio.sleep(0.05 * draw.random())
            assert answer[0] == 200, answer
            right += sum(a == b[::-1] for a, b in zip(json.loads(answer[1])["translatedText"], texts, strict=True))
        connection.close()

    await asyncio.gather(*(client(number) for number in range(n_clients)))
    return right


def main() -> None:
    import os
    import signal

    sys.path.insert(0, str(Path(__file__).parent / "serving"))
    from served import HeldEngine, echo_service, running
    from test_server import slow_clients, start_slow_server, stopped

    with running(echo_service()) as (url, _):
        right = asyncio.run(many_texts(url, n_texts=10_000))
    print(f"{right:,} of 10,000 texts answered rightly")
    assert right == 10_000

    service = echo_service(HeldEngine(seconds=0.02), queue_requests=16, batch_characters=1, n_threads=1)
    with running(service) as (url, _):
        load = asyncio.run(Load(url, per_second=150.0, seconds=60.0).run())
    refused = sorted(load.times[429])
    slow = refused[len(refused) * 99 // 100] * 1000
    print(f"three times too much for a minute: {dict(load.statuses)}, refused within {slow:.0f} ms (99 of 100)")
    assert set(load.statuses) == {200, 429} and not load.wrong and slow <= 50

    seconds = slow_clients(500, receive_seconds=8.0)
    print(f"500 slow clients cut after {seconds:.1f} s")
    assert seconds <= 10

    for number in range(20):
        with start_slow_server() as (process, url):
            statuses, broken = asyncio.run(
                ask_until_stopped(url, lambda pid=process.pid: os.kill(pid, signal.SIGTERM), after=0.5 + 0.05 * number)
            )
            accepted, answered = stopped(process)
        print(f"SIGTERM {number + 1}: {accepted} accepted, {answered} answered, {dict(statuses)}, {broken} unheard")
        assert accepted == answered and statuses[200] == accepted - 1


if __name__ == "__main__":
    main()
