"""What waits for one model, and how long that will take: foretold by how fast the last batches were.

A request that could not be answered in time is refused at once, and its client told when to come again. On a slow
machine, or behind a large model, a queue that is bounded by its size alone would accept what nobody waits for any more.

Requests of many clients, decoded together: texts wait in a queue, and threads take as many as make a batch.

    translate() ──► tickets, one for each request ──► a thread takes texts, from several of them ──► one search
         ▲                                                                                               │
         └────────────────────────── the answers, in the order of the texts ◄────────────────────────────┘

No text waits for a batch to fill while the model is idle. While it is busy texts gather, and a thread that is done
waits a moment for those who were just answered and ask again. The event loop never decodes. How much may wait is
bounded by `AdmissionQueue`, which is the same for all models of a server, and
by the `LatencyEstimator` of each, which knows its speed.
"""

import asyncio
import contextlib
import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.serving.errors import ApiError, busy, late, stopping
from heedful.serving.streaming import translate_texts

PER_TOKEN = 4  # characters, in scripts with spaces between words
# Where scripts without spaces begin and end, in turn: those of `long_text.UNSPACED`, and what lies between them.
_UNSPACED_FROM = np.array([0x2E80, 0xA000, 0xF900, 0xFB00, 0xFE30, 0xFE50, 0xFF00, 0xFF61, 0x20000, 0x40000])
PER_TEXT = 40  # characters that a text costs beside its own: short ones are decoded as slowly as some longer ones
HALF_WORK, HALF_SECONDS = 50_000, 10.0  # after so much work, or time at work, a batch counts half
PLANNED = 0.8  # of the time for an answer that may be taken by what is ahead; the rest is for mistakes
OF_A_BATCH = 0.25  # of the time for an answer that one batch may take: it is answered only when all of it is found
RETRY_AFTER = (1, 30)  # seconds


def size_of(text: str) -> int:
    """Characters as the budgets count them, about four to a token.

    Chinese and Japanese have about one token for each character: there one counts as four. It is called on the event
    loop, for whatever clients send: 5,000 characters take some 50 µs, in whatever order they stand.
    """
    if text.isascii():
        return len(text)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    places = np.searchsorted(_UNSPACED_FROM, codes, side="right")
    n_unspaced = int(np.count_nonzero(places & 1))  # behind the start of a range, before its end
    return len(text) + (PER_TOKEN - 1) * n_unspaced


def work_of(texts: Sequence[str], *, beam: int) -> int:
    """What texts cost, beside each other: every hypothesis of the beam is written as far as the text is long."""
    return beam * (sum(map(size_of, texts)) + PER_TEXT * len(texts))


class LatencyEstimator:
    """Asked and changed on the event loop; but `learn` and `batch` are called by threads, one at a time."""

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.work = 0  # accepted, not yet answered
        self._seconds = seconds  # until an answer must be there
        self._clock = clock
        # Of past batches. The later one is, the more it counts; so does a large one, since small ones are slow for
        # their size, and do not say how fast a full queue is.
        self._took, self._done = 0.0, 0.0
        self._last_end: float | None = None

    def now(self) -> float:
        return self._clock()

    def learn(self, work: int, began: float) -> None:
        """A batch is done. The first does not count: much is loaded and set up then.

        Of several at a time, each counts only from where the one before ended.
        """
        before, self._last_end = self._last_end, self._clock()
        if before is None:
            return
        seconds = self._last_end - max(began, before)
        keep = 0.5 ** max(work / HALF_WORK, seconds / HALF_SECONDS)
        self._took, self._done = keep * self._took + seconds, keep * self._done + work

    def wait(self, work: int = 0) -> float:
        """Seconds until this much more would be done; 0 as long as nothing was learned."""
        return self._pace * (self.work + work)

    def has_time_for(self, work: int) -> bool:
        """Whether it would be answered in time; who is alone is let in, or nobody ever would be."""
        return self.work == 0 or self.wait(work) <= PLANNED * self._seconds

    def batch(self, n_threads: int) -> float:
        """The most work for one of so many threads that decode at a time."""
        return OF_A_BATCH * self._seconds / n_threads / self._pace if self._pace else float("inf")

    def retry_after(self) -> int:
        """When it may be worth to come again: whole seconds, until what is ahead is done."""
        least, most = RETRY_AFTER
        return max(least, min(most, round(self.wait())))

    @property
    def _pace(self) -> float:
        """Seconds for a unit of work."""
        return self._took / self._done if self._done else 0.0


Found = list[list[Translation]]  # the n best of each text
Tell = Callable[[int, str], None]  # the number of a text, and its translation as far as it is written
Job = tuple["PendingRequest", int]  # a request, and the number of one of its texts
ENOUGH = 32  # texts that one thread may take though another could have half of them
FIRST_TEXTS = 4  # of a request that are decoded before the rest of older ones
PAUSE, LONGEST_PAUSE = 0.003, 0.03  # seconds without a new text, after which a batch is begun; in all


class AdmissionQueue:
    """How much is accepted and not yet answered, over all models. Used on the event loop only."""

    def __init__(self, *, requests: int, characters: int) -> None:
        self.most_requests, self.most_characters = requests, characters
        self.requests = self.characters = 0
        self.accepted = self.answered = 0
        self.is_closed = False

    @contextlib.contextmanager
    def place(self, n_characters: int, work: Mapping[LatencyEstimator, int]) -> Iterator[None]:
        """A place in the queue, or a Refusal at once. It is free again when the context ends, however it ends.

        One for a whole request, however many searches it takes: its parts must not crowd each other out. `work` is what
        it adds to the backlog of each model.
        """
        has_time = all(backlog.has_time_for(more) for backlog, more in work.items())
        with self._taken(n_characters, work, has_time=has_time):
            self.accepted += 1
            for backlog, more in work.items():
                backlog.work += more
            try:
                yield
            finally:
                for backlog, more in work.items():
                    backlog.work -= more
        self.answered += 1

    @contextlib.contextmanager
    def preparing(self, n_characters: int, backlog: LatencyEstimator) -> Iterator[None]:
        """A place for what comes before a search, such as reading HTML: as bounded as that, but not yet accepted."""
        with self._taken(n_characters, [backlog], has_time=True):
            yield

    @contextlib.contextmanager
    def _taken(self, n_characters: int, backlogs: Iterable[LatencyEstimator], *, has_time: bool) -> Iterator[None]:
        if self.is_closed:
            raise stopping()
        # A request with more characters than fit is let in when nobody else waits: else it never could be.
        full = self.requests > 0 and self.characters + n_characters > self.most_characters
        if full or self.requests >= self.most_requests or not has_time:
            raise busy(max(backlog.retry_after() for backlog in backlogs))
        self.requests, self.characters = self.requests + 1, self.characters + n_characters
        try:
            yield
        finally:
            self.requests, self.characters = self.requests - 1, self.characters - n_characters

    @property
    def fill(self) -> float:
        """The fuller of the two bounds, 0 to 1."""
        return max(self.requests / self.most_requests, min(1.0, self.characters / self.most_characters))


@dataclass(eq=False)
class PendingRequest:
    """One request on its way. Changed by the threads under the batcher's lock, but for `wanted`."""

    texts: Sequence[str]
    settings: SearchSettings
    future: "asyncio.Future[Found]"
    tell: Tell | None
    number: int  # in the order of arrival
    waiting: deque[int] = field(default_factory=deque)  # numbers of texts that no thread has taken yet
    found: list[list[Translation]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of the texts, as the budgets count them
    n_left: int = 0
    wanted: bool = True


@dataclass
class Work:
    """What was decoded so far: for the metrics."""

    batches: int = 0
    texts: int = 0
    seconds: float = 0.0

    def add(self, n_texts: int, seconds: float) -> None:
        self.batches, self.texts, self.seconds = self.batches + 1, self.texts + n_texts, self.seconds + seconds


class Batcher:
    """Translates with one model. Make it, and call `translate`, in a running event loop."""

    def __init__(
        self,
        translator: Translator,
        room: AdmissionQueue,
        *,
        batch_characters: int,
        seconds: float,
        n_threads: int = 2,
        prepare: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.translator = translator
        self.room = room
        self.backlog = LatencyEstimator(seconds=seconds, clock=clock)
        self.work = Work()
        self.n_threads = n_threads
        self._batch_characters = batch_characters
        self._seconds = seconds
        self._prepare = prepare  # run by each thread before its first batch
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._tickets: deque[PendingRequest] = deque()  # those with waiting texts; first who was not served for longest
        self._changed = threading.Condition()
        self._n_taken = 0  # texts that threads decode now
        self._is_closed = False
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="decode")
        self._running = [self._threads.submit(self._run) for _ in range(n_threads)]

    async def translate(self, texts: Sequence[str], settings: SearchSettings, *, tell: Tell | None = None) -> Found:
        """A request that is for this model alone: a place in the queue, then `search`."""
        if not texts:
            return []
        with self.room.place(sum(map(size_of, texts)), {self.backlog: work_of(texts, beam=settings.beam)}):
            return await self.search(texts, settings, tell=tell)

    async def search(self, texts: Sequence[str], settings: SearchSettings, *, tell: Tell | None = None) -> Found:
        """The n best of each text, in their order. Cancel it, and its texts leave the queue, or the search, at once.

        Whoever calls it has a place in the room for them. `tell` is called on the event loop with what is written so
        far, where the engine can be looked into.
        """
        waiting = deque(range(len(texts)))
        ticket = PendingRequest(texts, settings, self._loop.create_future(), tell, next(self._numbers), waiting)
        ticket.found, ticket.n_left, ticket.sizes = [[] for _ in texts], len(texts), list(map(size_of, texts))
        with self._changed:
            self._tickets.append(ticket)
            self._changed.notify()
        try:
            async with asyncio.timeout(self._seconds):
                return await ticket.future
        except TimeoutError:
            raise late(self.backlog.retry_after()) from None
        finally:
            self._forget(ticket)

    def close(self) -> None:
        """End the threads. What waits is given up: drain first."""
        with self._changed:
            self._is_closed = True
            for ticket in self._tickets:
                ticket.wanted = False
            self._changed.notify_all()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, ticket: PendingRequest) -> None:
        ticket.wanted = False
        with self._changed:
            if ticket.waiting:  # else it is no longer there
                self._tickets.remove(ticket)

    def _run(self) -> None:
        """What a thread does until the batcher is closed."""
        if self._prepare is not None:
            self._prepare()
        while (batch := self._next_batch()) is not None:
            began = self.backlog.now()
            try:
                self._decode(batch)
            except Exception as error:  # of one text, perhaps: it must not fail the others
                self._decode_apart(batch, error)
            with self._changed:
                self._n_taken -= len(batch)
                self.work.add(len(batch), self.backlog.now() - began)

    def _next_batch(self) -> list[Job] | None:
        """Texts that are searched for in the same way; None at the end."""
        with self._changed:
            while True:
                while not self._tickets and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return None
                self._gather()
                if self._tickets:  # another thread may have taken all
                    break
            return self._take()

    def _take(self) -> list[Job]:
        """As much as makes a batch, for who was not served for longest and all who want to be served like it."""
        first = self._tickets[0].settings
        jobs = _in_turn([one for one in self._tickets if one.settings is first or one.settings == first])
        room, most_work = self._batch_characters, self.backlog.batch(self.n_threads)
        # No more than its share: else one thread has nearly all clients, and waits, each time, until they are back.
        n_texts = self._n_taken + sum(len(one.waiting) for one in self._tickets)
        share = max(ENOUGH, -(-n_texts // self.n_threads))
        batch: list[Job] = []
        while len(batch) < share and room > 0 and most_work > 0 and (job := next(jobs, None)) is not None:
            batch.append(job)
            room -= job[0].sizes[job[1]] + 1
            most_work -= _work(job)
        served = dict.fromkeys(ticket for ticket, _ in batch)
        left = [one for one in self._tickets if one not in served]
        self._tickets = deque([*left, *(one for one in served if one.waiting)])
        self._n_taken += len(batch)
        if self._tickets:
            self._changed.notify()  # another thread may take the rest
        return batch

    def _gather(self) -> None:
        """While another thread decodes, wait for as long as texts keep coming, a moment at most.

        Clients that were answered together ask again together. Without the pause the first of them would be decoded
        alone, and all others after it. A lone client never waits: then nobody decodes.
        """
        until = time.monotonic() + LONGEST_PAUSE
        n_tickets = 0
        while self._n_taken and len(self._tickets) > n_tickets and time.monotonic() < until:
            n_tickets = len(self._tickets)
            self._changed.release()
            try:
                time.sleep(PAUSE)
            finally:
                self._changed.acquire()

    def _decode(self, batch: Sequence[Job]) -> None:
        began = self.backlog.now()
        found = translate_texts(
            self.translator,
            [_text(job) for job in batch],
            batch[0][0].settings,
            wanted=lambda place: batch[place][0].wanted,
            listeners={
                place: functools.partial(self._tell, ticket, number)
                for place, (ticket, number) in enumerate(batch)
                if ticket.tell is not None
            },
        )
        done = []
        with self._changed:
            self.backlog.learn(sum(map(_work, batch)), began)  # before anybody can ask again
            for (ticket, number), translations in zip(batch, found, strict=True):
                ticket.found[number] = translations
                ticket.n_left -= 1
                if ticket.n_left == 0 and ticket.wanted:
                    done.append(ticket)
        self._on_loop(lambda: _answer(done))

    def _decode_apart(self, batch: Sequence[Job], error: Exception) -> None:
        """Each request by itself; whose texts fail alone is told so."""
        tickets = dict.fromkeys(ticket for ticket, _ in batch)
        for ticket in tickets:
            alone = [job for job in batch if job[0] is ticket]
            try:
                if len(tickets) == 1:
                    raise error
                self._decode(alone)
            except Exception as found:
                self._on_loop(lambda ticket=ticket, found=found: _fail(ticket, found))  # type: ignore[misc]

    def _tell(self, ticket: PendingRequest, number: int, text: str) -> None:
        tell = ticket.tell
        if tell is not None:
            self._on_loop(lambda: tell(number, text) if ticket.wanted else None)

    def _on_loop(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(act)


def _in_turn(tickets: Sequence[PendingRequest]) -> Iterator[Job]:
    """Some texts of each new request, so that a small one never waits for a large one; then all of the oldest.

    Were all served alike, they would be done at the same time, and ask again at the same time: until then, nothing
    would be there to do.
    """
    for ticket in tickets:
        if len(ticket.waiting) == len(ticket.texts):
            for _ in range(min(FIRST_TEXTS, len(ticket.texts))):
                yield ticket, ticket.waiting.popleft()
    for ticket in sorted(tickets, key=lambda ticket: ticket.number):
        while ticket.waiting:
            yield ticket, ticket.waiting.popleft()


def _text(job: Job) -> str:
    ticket, number = job
    return ticket.texts[number]


def _work(job: Job) -> int:
    ticket, number = job
    return ticket.settings.beam * (ticket.sizes[number] + PER_TEXT)


def _answer(tickets: Sequence[PendingRequest]) -> None:
    for ticket in tickets:
        if not ticket.future.done():
            ticket.future.set_result(ticket.found)


def _fail(ticket: PendingRequest, error: Exception) -> None:
    if not ticket.future.done():
        ticket.future.set_exception(error if isinstance(error, ApiError) else CannotTranslate(error))


class CannotTranslate(Exception):
    """The engine failed with a text: a bug of ours or a lack of memory; what it was is the cause, for the log."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("Cannot translate text")
        self.__cause__ = cause
