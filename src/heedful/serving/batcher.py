"""Requests of many clients, decoded together: texts wait in a queue, and threads take as many as make a batch.

    translate() ──► tickets, one for each request ──► a thread takes texts, from several of them ──► one search
         ▲                                                                                               │
         └────────────────────────── the answers, in the order of the texts ◄────────────────────────────┘

No text waits for a batch to fill while the model is idle. While it is busy texts gather, and a thread that is done
waits a moment for those who were just answered and ask again. The event loop never decodes. How much may wait is
bounded by `Room`, which is the same for all models of a server, and by the `Backlog` of each, which knows its speed.
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

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.writing.translation import Translation
from heedful.decoding.writing.translator import Translator
from heedful.serving.backlog import PER_TEXT, Backlog, size_of, work_of
from heedful.serving.decode import translate_texts
from heedful.serving.refusals import Refusal, busy, late, stopping

Found = list[list[Translation]]  # the n best of each text
Tell = Callable[[int, str], None]  # the number of a text, and its translation as far as it is written
Job = tuple["Ticket", int]  # a request, and the number of one of its texts
ENOUGH = 32  # texts that one thread may take though another could have half of them
FIRST_TEXTS = 4  # of a request that are decoded before the rest of older ones
PAUSE, LONGEST_PAUSE = 0.003, 0.03  # seconds without a new text, after which a batch is begun; in all


class Room:
    """How much is accepted and not yet answered, over all models. Used on the event loop only."""

    def __init__(self, *, requests: int, characters: int) -> None:
        self.most_requests, self.most_characters = requests, characters
        self.requests = self.characters = 0
        self.accepted = self.answered = 0
        self.is_closed = False

    @contextlib.contextmanager
    def place(self, n_characters: int, work: Mapping[Backlog, int]) -> Iterator[None]:
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
    def preparing(self, n_characters: int, backlog: Backlog) -> Iterator[None]:
        """A place for what comes before a search, such as reading HTML: as bounded as that, but not yet accepted."""
        with self._taken(n_characters, [backlog], has_time=True):
            yield

    @contextlib.contextmanager
    def _taken(self, n_characters: int, backlogs: Iterable[Backlog], *, has_time: bool) -> Iterator[None]:
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
class Ticket:
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
        room: Room,
        *,
        batch_characters: int,
        seconds: float,
        n_threads: int = 2,
        prepare: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.translator = translator
        self.room = room
        self.backlog = Backlog(seconds=seconds, clock=clock)
        self.work = Work()
        self.n_threads = n_threads
        self._batch_characters = batch_characters
        self._seconds = seconds
        self._prepare = prepare  # run by each thread before its first batch
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._tickets: deque[Ticket] = deque()  # those with waiting texts; first who was not served for longest
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
        ticket = Ticket(texts, settings, self._loop.create_future(), tell, next(self._numbers), waiting)
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

    def _forget(self, ticket: Ticket) -> None:
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

    def _tell(self, ticket: Ticket, number: int, text: str) -> None:
        tell = ticket.tell
        if tell is not None:
            self._on_loop(lambda: tell(number, text) if ticket.wanted else None)

    def _on_loop(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(act)


def _in_turn(tickets: Sequence[Ticket]) -> Iterator[Job]:
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


def _answer(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        if not ticket.future.done():
            ticket.future.set_result(ticket.found)


def _fail(ticket: Ticket, error: Exception) -> None:
    if not ticket.future.done():
        ticket.future.set_exception(error if isinstance(error, Refusal) else CannotTranslate(error))


class CannotTranslate(Exception):
    """The engine failed with a text: a bug of ours or a lack of memory; what it was is the cause, for the log."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("Cannot translate text")
        self.__cause__ = cause
