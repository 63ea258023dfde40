"""Clients for a server under load; the tests and `make serve-test` (serve_trials.py) use them."""

import asyncio
import copy
import itertools
import json
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.callback import BeamTrace, SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGH.,;!?"
TIE = 1e-4  # of the logarithms of two probabilities
Found = dict[str, tuple[str, float]]  # text -> its translation and the score of that


def random_text(draw: random.Random, *, longest: int = 60) -> str:
    """Return a random text of letters that the echo knows, without spaces at its ends."""
    return "".join(draw.choices(LETTERS, k=draw.randint(0, longest))).strip() + "z"


class Connection:
    """A minimal HTTP/1.1 client, cheap enough to leave the processor to the server."""

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
    """Requests at a fixed rate, whether or not answers come, with their statuses and times."""

    url: str
    per_second: float
    seconds: float
    texts: Sequence[str]
    path: str = "/translate"
    more: Mapping[str, object] = field(default_factory=dict)  # beside q, source and target
    pair: tuple[str, str] = ("en", "fr")
    is_right: Callable[[str, bytes], bool] = lambda text, answer: True  # of answers with status 200
    n_connections: int = 64
    statuses: Counter[int] = field(default_factory=Counter)
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> "Load":
        started = time.monotonic()
        idle = [Connection(self.url) for _ in range(self.n_connections)]
        tasks = []
        for number in range(round(self.per_second * self.seconds)):
            await asyncio.sleep(max(0.0, started + number / self.per_second - time.monotonic()))
            connection = idle.pop() if idle else Connection(self.url)
            text = self.texts[number % len(self.texts)]
            tasks.append(asyncio.create_task(self._ask(connection, text, idle)))
        await asyncio.gather(*tasks)
        self.seconds = time.monotonic() - started
        for connection in idle:
            connection.close()
        return self

    async def _ask(self, connection: Connection, text: str, idle: list[Connection]) -> None:
        body = {"q": text, "source": self.pair[0], "target": self.pair[1], **self.more}
        started = time.monotonic()
        try:
            status, content = await connection.post(self.path, body)
        except ConnectionError:  # the server had closed the idle connection: try again
            connection = Connection(self.url)
            status, content = await connection.post(self.path, body)
        self.times[status].append(time.monotonic() - started)
        self.statuses[status] += 1
        if status == 200 and not self.is_right(text, content):
            self.wrong.append(text)
        idle.append(connection)

    def percentile(self, status: int, share: float) -> float:
        """Return a percentile of the times in milliseconds; 0 if there was no answer with this status."""
        times = sorted(self.times[status])
        return 1000.0 * times[min(len(times) - 1, int(len(times) * share))] if times else 0.0


def echoed(text: str, answer: bytes) -> bool:
    """Return whether the answer is the text spelled backwards."""
    return bool(json.loads(answer) == {"translatedText": text[::-1]})


async def closed_loop(url: str, texts: Sequence[str], more: Mapping[str, object], *, seconds: float, n: int) -> float:
    """Return the texts per second if each of n clients asks again as soon as it is answered: the highest throughput."""
    until = time.monotonic() + seconds
    done = 0

    async def client(number: int) -> None:
        nonlocal done
        connection, turn = Connection(url), number
        while time.monotonic() < until:
            body = {"q": texts[turn % len(texts)], "source": "en", "target": "de", **more}
            while (answer := await connection.post("/api/v1/translate", body))[0] == 429:
                await asyncio.sleep(0.1)
            assert answer[0] == 200, answer
            done, turn = done + 1, turn + n
        connection.close()

    started = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(n)))
    return done / (time.monotonic() - started)


async def ask_until_stopped(
    url: str, stop: Callable[[], None], *, after: float, n_clients: int = 24
) -> tuple[Counter[int], int]:
    """Let clients ask without pause until the server is gone; return the statuses and the number of missing answers."""
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


async def many_texts(
    url: str, texts: Sequence[str], *, n_clients: int = 100, pair: tuple[str, str] = ("en", "fr")
) -> Found:
    """Send all texts from many clients, in requests of one to eight; a refused request is sent again."""
    found: Found = {}
    left = list(texts)

    async def client(number: int) -> None:
        draw, connection = random.Random(number), Connection(url)
        while left:
            part = [left.pop() for _ in range(min(len(left), draw.randint(1, 8)))]
            body = {"q": part, "source": pair[0], "target": pair[1]}
            while (answer := await connection.post("/api/v1/translate", body))[0] == 429:
                await asyncio.sleep(0.05 * draw.random())
            assert answer[0] == 200, answer
            for text, one in zip(part, json.loads(answer[1])["translations"], strict=True):
                found[text] = one["candidates"][0]["text"], one["candidates"][0]["score"]
        connection.close()

    await asyncio.gather(*(client(number) for number in range(n_clients)))
    return found


def differing(found: Found, offline: Mapping[str, Translation]) -> list[tuple[str, str, str]]:
    """Return (text, server's translation, offline translation) where they differ and the scores are not tied."""
    return [
        (text, said, offline[text].text)
        for text, (said, score) in found.items()
        if said != offline[text].text and abs(score - offline[text].score) > TIE
    ]


def narrowest_choice(translator: Translator, text: str, *, beam: int) -> float:
    """Return the smallest difference of scores that decided which hypotheses stay in the beam.

    Below TIE, rounding in another batch may decide otherwise and lead to another text.
    """
    assert isinstance(translator.engine, TorchEngine)
    watching = Watching(translator.engine)
    one = copy.copy(translator)
    one.engine = watching
    one.search([text], beam=beam)
    return watching.narrowest


class Watching:
    """An engine that records the smallest difference of scores that decided a step of its beam."""

    name = "torch"

    def __init__(self, engine: TorchEngine) -> None:
        self.engine, self.narrowest = engine, math.inf

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        results = []
        for request in requests:
            trace = BeamTrace()
            results += self.engine.search([request], settings, callback=SearchCallback(on_candidates=trace.add))
            for _, group in itertools.groupby(trace.events, key=lambda event: event.step):
                step = list(group)  # best first
                self._look([event.score for event in step], settings.beam)
                self._look(
                    [event.score for event in step if event.token != self.engine.step.special_ids.eos_id], settings.beam
                )
        return results

    def _look(self, scores: Sequence[float], beam: int) -> None:
        if len(scores) > beam:
            self.narrowest = min(self.narrowest, scores[beam - 1] - scores[beam])
