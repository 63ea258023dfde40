"""Clients of benchmarks/speed/serve.py: a closed loop (the next request follows the answer) and fixed rates."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

REFUSED = (429, 503)


class Connection:
    """A minimal HTTP/1.1 client; a client library would use more CPU time than the server."""

    def __init__(self, port: int, counts: Counter[str]) -> None:
        self.port, self.counts = port, counts
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def translate(self, texts: list[str], pair: str) -> list[str] | None:
        """Return the translations, or None if the server refused; reconnect if it has closed an idle connection."""
        source, target = pair.split("-", 1)
        body = json.dumps({"q": texts, "source": source, "target": target}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        data = f"{head}{len(body)}\r\n\r\n".encode() + body
        response = None
        if self._streams is not None:
            response = await self._send(data, *self._streams)
            if response is None:
                self.counts["reconnects"] += 1
                self.close()
        if response is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
            response = await self._send(data, *self._streams)
        if response is None:
            raise ConnectionError("the server closed a new connection without a response")
        status, content = response
        if status in REFUSED:
            self.counts["refused"] += 1
            return None
        if status != 200:
            raise ConnectionError(f"status {status}: {content[:200]!r}")
        translations: list[str] = json.loads(content)["translatedText"]
        return translations

    async def _send(
        self, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, bytes] | None:
        """Return status and body, or None if the connection was closed before the first byte of the response."""
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
    """The results of clients that send the next request as soon as they have an answer."""

    rate: float = 0.0  # texts per second
    answered: int = 0  # texts, with those answered after the end
    translations: list[str] = field(default_factory=list)  # in the order of the texts
    counts: Counter[str] = field(default_factory=Counter)


async def closed_loop(
    port: int, texts: list[str], pair: str, *, n: int, n_clients: int, seconds: float | None = None
) -> Closed:
    """Send all texts, `n` per request; or, with `seconds`, for so long.

    Until the last text is answered, all clients continue with texts from the beginning. Otherwise the rate would
    include an end with few active clients.
    """
    parts = [texts[start : start + n] for start in range(0, len(texts), n)]
    answers: dict[int, list[str]] = {}
    numbers, is_over, n_done, duration = itertools.count(), False, 0, 0.0
    result, start = Closed(), time.monotonic()

    async def client() -> None:
        nonlocal is_over, n_done, duration
        connection = Connection(port, result.counts)
        while not is_over:
            number = next(numbers)
            part = parts[number % len(parts)]
            while (translations := await connection.translate(part, pair)) is None:
                await asyncio.sleep(0.05)
            result.answered += len(part)
            if is_over and seconds is None:
                break  # answered after the end
            n_done, duration = n_done + len(part), time.monotonic() - start
            if number < len(parts):
                answers[number] = translations
            is_over = duration >= seconds if seconds is not None else len(answers) == len(parts)
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    result.rate = n_done / duration
    result.translations = [text for number in sorted(answers) for text in answers[number]]
    return result


async def open_loop(port: int, texts: list[str], pair: str, *, per_second: float, seconds: float) -> dict[str, float]:
    """Send requests of one text at random times (a Poisson process); return percentiles of the latency in ms.

    Latency is measured from the time at which a request was due, even if the client sent it later. Requests in the
    first tenth of the time are not counted.
    """
    rng, times, counts, idle = random.Random(1), list[float](), Counter[str](), list[Connection]()

    async def send(text: str, due: float, *, is_counted: bool) -> None:
        connection = idle.pop() if idle else Connection(port, counts)
        translations = await connection.translate([text], pair)
        if translations is not None and is_counted:
            times.append(1000.0 * (time.monotonic() - due))
        idle.append(connection)

    tasks, at, start = [], 0.0, time.monotonic()
    while at < seconds:
        await asyncio.sleep(max(0.0, start + at - time.monotonic()))
        is_counted = at >= 0.1 * seconds
        tasks.append(asyncio.create_task(send(rng.choice(texts), start + at, is_counted=is_counted)))
        at += rng.expovariate(per_second)
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return {
        "per_second": per_second,
        "requests": len(tasks),
        "refused": counts["refused"],
        "reconnects": counts["reconnects"],
        **{f"p{share}": percentile(times, share) for share in (50, 95, 99)},
    }


def percentile(times: list[float], share: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * share // 100)] if times else float("nan")
