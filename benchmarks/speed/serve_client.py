"""Clients of `benchmarks/speed/serve.py`: some ask again as soon as they are answered, some at a fixed rate."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

REFUSED = (429, 503)


class Connection:
    """As much of HTTP/1.1 as is needed: a client library would take more of the processor than the server."""

    def __init__(self, port: int, counts: Counter[str]) -> None:
        self.port, self.counts = port, counts
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def translate(self, texts: list[str], pair: str) -> list[str] | None:
        """The translations; None if the server refused. A connection that it closed while it was idle is made again."""
        source, target = pair.split("-", 1)
        body = json.dumps({"q": texts, "source": source, "target": target}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        data = f"{head}{len(body)}\r\n\r\n".encode() + body
        answer = None
        if self._streams is not None:
            answer = await self._ask(data, *self._streams)
            if answer is None:
                self.counts["reconnects"] += 1
                self.close()
        if answer is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
            answer = await self._ask(data, *self._streams)
        if answer is None:
            raise ConnectionError("a new connection was closed without an answer")
        status, content = answer
        if status in REFUSED:
            self.counts["refused"] += 1
            return None
        if status != 200:
            raise ConnectionError(f"status {status}: {content[:200]!r}")
        found: list[str] = json.loads(content)["translatedText"]
        return found

    async def _ask(
        self, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, bytes] | None:
        """Status and body; None if the connection was closed before any byte of the answer came."""
        try:
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None
        except ConnectionError:
            return None
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        content = await reader.readexactly(int(headers[b"content-length"]))
        if headers.get(b"connection") == b"close":
            self.close()
        return int(head.split(b" ", 2)[1]), content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


@dataclass
class Closed:
    """What clients got that ask again as soon as they are answered."""

    rate: float = 0.0  # texts a second
    answered: int = 0  # texts, those after the end as well
    found: list[str] = field(default_factory=list)  # in the order of the texts, if all were asked for
    counts: Counter[str] = field(default_factory=Counter)


async def closed_loop(
    port: int, texts: list[str], pair: str, *, n: int, n_clients: int, seconds: float | None = None
) -> Closed:
    """All texts; or for some seconds, the last answers awaited.

    All clients go on, with texts of the beginning, until the last text is answered: else the end would be measured,
    where most have left.
    """
    parts = [texts[start : start + n] for start in range(0, len(texts), n)]
    answers: dict[int, list[str]] = {}
    turns, is_over, done, lasted = itertools.count(), False, 0, 0.0
    result, started = Closed(), time.monotonic()

    async def client() -> None:
        nonlocal is_over, done, lasted
        connection = Connection(port, result.counts)
        while not is_over:
            number = next(turns)
            part = parts[number % len(parts)]
            while (found := await connection.translate(part, pair)) is None:
                await asyncio.sleep(0.05)
            result.answered += len(part)
            if is_over and seconds is None:
                break  # came after the end
            done, lasted = done + len(part), time.monotonic() - started
            if number < len(parts):
                answers[number] = found
            is_over = lasted >= seconds if seconds is not None else len(answers) == len(parts)
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    result.rate = done / lasted
    result.found = [text for number in sorted(answers) for text in answers[number]]
    return result


async def open_loop(port: int, texts: list[str], pair: str, *, per_second: float, seconds: float) -> dict[str, float]:
    """Requests of one text come as chance has it, at a mean rate; how long their answers take, in milliseconds.

    Counted from when a request was due, not from when the client got round to it; those of the first tenth of the time
    are not counted.
    """
    draw, times, counts, idle = random.Random(1), list[float](), Counter[str](), list[Connection]()

    async def ask(text: str, due: float, *, counted: bool) -> None:
        connection = idle.pop() if idle else Connection(port, counts)
        found = await connection.translate([text], pair)
        if found is not None and counted:
            times.append(1000.0 * (time.monotonic() - due))
        idle.append(connection)

    tasks, at, started = [], 0.0, time.monotonic()
    while at < seconds:
        await asyncio.sleep(max(0.0, started + at - time.monotonic()))
        is_counted = at >= 0.1 * seconds
        tasks.append(asyncio.create_task(ask(draw.choice(texts), started + at, counted=is_counted)))
        at += draw.expovariate(per_second)
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return {
        "per_second": per_second,
        "asked": len(tasks),
        "refused": counts["refused"],
        "reconnects": counts["reconnects"],
        **{f"p{share}": percentile(times, share) for share in (50, 95, 99)},
    }


def percentile(times: list[float], share: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * share // 100)] if times else float("nan")
