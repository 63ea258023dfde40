"""Dynamic batching: texts of many clients are decoded together, by threads that take batches from a queue.

    search() ──► PendingRequest, one per request ──► a thread takes texts from several requests ──► one search
        ▲                                                                                              │
        └────────────────────────── results in the order of the texts ◄────────────────────────────────┘

A text never waits for a batch to fill while the model is idle. While the model is busy, texts collect; a thread that
has finished waits a few milliseconds for clients that were just answered and ask again. The event loop never decodes.

Two limits bound the queue. `AdmissionQueue` limits requests and characters over all models. `LatencyEstimator` predicts
from the speed of recent batches when a request would be answered; a request that would be late is rejected at once,
with the time after which to retry. On a slow machine, a limit of the size alone would accept hopeless requests.
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
from heedful.serving.errors import ApiError, busy, stopping, timed_out

PER_TOKEN = 4  # characters per token in scripts with spaces between words
# Start, end, start, end, … of the code ranges of scripts without spaces, as in `segmentation.UNSPACED`.
_UNSPACED_FROM = np.array([0x2E80, 0xA000, 0xF900, 0xFB00, 0xFE30, 0xFE50, 0xFF00, 0xFF61, 0x20000, 0x40000])
PER_TEXT = 40  # characters added for each text, because short texts take longer per character
HALF_WORK, HALF_SECONDS = 50_000, 10.0  # after this much work or decoding time, the weight of a batch is halved
PLANNED_SHARE = 0.8  # share of the time limit that the queue may take; the rest allows for errors of the prediction
BATCH_SHARE = 0.25  # share of the time limit that one batch may take; its answers come when the whole batch is done
RETRY_AFTER = (1, 30)  # seconds


def size_of(text: str) -> int:
    """Count the characters of a text for the limits, about four per token.

    A character of Chinese or Japanese counts as four, because it is about one token. The function runs on the event
    loop: 5,000 characters take about 50 µs.
    """
    if text.isascii():
        return len(text)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    ranges = np.searchsorted(_UNSPACED_FROM, codes, side="right")
    n_unspaced = int(np.count_nonzero(ranges & 1))  # odd: after the start of a range and before its end
    return len(text) + (PER_TOKEN - 1) * n_unspaced


def work_of(texts: Sequence[str], *, beam: int) -> int:
    """Estimate the relative cost of decoding texts: proportional to their lengths and to the beam."""
    return beam * (sum(map(size_of, texts)) + PER_TEXT * len(texts))


class LatencyEstimator:
    """Predicts how long the accepted work of one model will take.

    It is used on the event loop, except `learn` and `batch`, which decoding threads call one at a time.
    """

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.work = 0  # accepted and not yet answered
        self._seconds = seconds  # the time limit of a request
        self._clock = clock
        # Weighted sums over past batches. Recent and large batches weigh more: small batches are slow for their size
        # and do not show how fast a full queue is decoded.
        self._took, self._done = 0.0, 0.0
        self._last_end: float | None = None

    def now(self) -> float:
        """Return the time of the clock."""
        return self._clock()

    def learn(self, work: int, began: float) -> None:
        """Record a finished batch. The first batch is ignored, because it includes loading and setting up.

        If batches overlap, each counts from the end of the previous one.
        """
        before, self._last_end = self._last_end, self._clock()
        if before is None:
            return
        seconds = self._last_end - max(began, before)
        keep = 0.5 ** max(work / HALF_WORK, seconds / HALF_SECONDS)
        self._took, self._done = keep * self._took + seconds, keep * self._done + work

    def wait(self, work: int = 0) -> float:
        """Predict the seconds until this much additional work would be done; 0 before the first measurement."""
        return self._pace * (self.work + work)

    def has_time_for(self, work: int) -> bool:
        """Return whether additional work would be done in time. An empty queue always accepts."""
        return self.work == 0 or self.wait(work) <= PLANNED_SHARE * self._seconds

    def batch(self, n_threads: int) -> float:
        """Return the most work for one batch if this many threads decode at the same time."""
        return BATCH_SHARE * self._seconds / n_threads / self._pace if self._pace else float("inf")

    def retry_after(self) -> int:
        """Return the whole seconds until the accepted work will be done, between 1 and 30."""
        least, most = RETRY_AFTER
        return max(least, min(most, round(self.wait())))

    @property
    def _pace(self) -> float:
        """Seconds per unit of work."""
        return self._took / self._done if self._done else 0.0


NBestLists = list[list[Translation]]  # the n best translations of each text
PartialListener = Callable[[int, str], None]  # gets the index of a text and its partial translation
Job = tuple["PendingRequest", int]  # a request and the index of one of its texts
MIN_SHARE = 32  # texts that a thread may take even if this leaves other threads idle
FIRST_TEXTS = 4  # texts of a new request that are decoded before the rest of older requests
PAUSE, LONGEST_PAUSE = 0.003, 0.03  # seconds to wait for a further text; seconds to wait in all


class AdmissionQueue:
    """The accepted and unanswered requests of all models, bounded in number and characters. For the event loop only."""

    def __init__(self, *, requests: int, characters: int) -> None:
        self.max_requests, self.max_characters = requests, characters
        self.requests = self.characters = 0
        self.accepted = self.answered = 0
        self.is_closed = False

    @contextlib.contextmanager
    def place(self, n_characters: int, work: Mapping[LatencyEstimator, int]) -> Iterator[None]:
        """Hold a place in the queue during the context, or raise a 429 or 503 at once.

        A request takes one place for all of its searches, so that its parts do not compete. `work` is what it adds to
        the estimator of each model.
        """
        has_time = all(estimator.has_time_for(more) for estimator, more in work.items())
        with self._taken(n_characters, work, has_time=has_time):
            self.accepted += 1
            for estimator, more in work.items():
                estimator.work += more
            try:
                yield
            finally:
                for estimator, more in work.items():
                    estimator.work -= more
        self.answered += 1

    @contextlib.contextmanager
    def preparing(self, n_characters: int, estimator: LatencyEstimator) -> Iterator[None]:
        """Hold a place during work before the search, such as parsing HTML. It does not count as accepted."""
        with self._taken(n_characters, [estimator], has_time=True):
            yield

    @contextlib.contextmanager
    def _taken(self, n_characters: int, estimators: Iterable[LatencyEstimator], *, has_time: bool) -> Iterator[None]:
        if self.is_closed:
            raise stopping()
        # An empty queue accepts a request with more characters than the limit; otherwise it could never be accepted.
        full = self.requests > 0 and self.characters + n_characters > self.max_characters
        if full or self.requests >= self.max_requests or not has_time:
            raise busy(max(estimator.retry_after() for estimator in estimators))
        self.requests, self.characters = self.requests + 1, self.characters + n_characters
        try:
            yield
        finally:
            self.requests, self.characters = self.requests - 1, self.characters - n_characters

    @property
    def fill(self) -> float:
        """The fill of the queue from 0 to 1, by the limit that is closer."""
        return max(self.requests / self.max_requests, min(1.0, self.characters / self.max_characters))


@dataclass(eq=False)
class PendingRequest:
    """One request in progress. Threads change it under the batcher's lock, except `is_live`."""

    texts: Sequence[str]
    settings: SearchSettings
    future: "asyncio.Future[NBestLists]"
    tell: PartialListener | None
    number: int  # in the order of arrival
    waiting: deque[int] = field(default_factory=deque)  # indices of texts that no thread has taken yet
    results: list[list[Translation]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # `size_of` each text
    n_left: int = 0
    is_live: bool = True  # false when the client no longer waits


@dataclass
class Work:
    """Totals of decoded batches, for the metrics."""

    batches: int = 0
    texts: int = 0
    seconds: float = 0.0

    def add(self, n_texts: int, seconds: float) -> None:
        self.batches, self.texts, self.seconds = self.batches + 1, self.texts + n_texts, self.seconds + seconds


class Batcher:
    """Translates with one model, for many clients at once. Create and use it in a running event loop."""

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
        self.estimator = LatencyEstimator(seconds=seconds, clock=clock)
        self.work = Work()
        self.n_threads = n_threads
        self._batch_characters = batch_characters
        self._seconds = seconds
        self._prepare = prepare  # each thread calls it before its first batch
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._requests: deque[PendingRequest] = deque()  # with waiting texts; the one served longest ago is first
        self._changed = threading.Condition()
        self._n_taken = 0  # texts that threads decode now
        self._is_closed = False
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="decode")
        self._running = [self._threads.submit(self._run) for _ in range(n_threads)]

    async def translate(
        self, texts: Sequence[str], settings: SearchSettings, *, tell: PartialListener | None = None
    ) -> NBestLists:
        """Take a place in the queue and translate texts with this model."""
        if not texts:
            return []
        with self.room.place(sum(map(size_of, texts)), {self.estimator: work_of(texts, beam=settings.beam)}):
            return await self.search(texts, settings, tell=tell)

    async def search(
        self, texts: Sequence[str], settings: SearchSettings, *, tell: PartialListener | None = None
    ) -> NBestLists:
        """Find the n best translations of each text. The caller must hold a place in the queue.

        If the call is cancelled, its texts leave the queue or the running search. `tell` gets partial translations on
        the event loop, if the engine supports them.
        """
        waiting = deque(range(len(texts)))
        request = PendingRequest(texts, settings, self._loop.create_future(), tell, next(self._numbers), waiting)
        request.results, request.n_left, request.sizes = [[] for _ in texts], len(texts), list(map(size_of, texts))
        with self._changed:
            self._requests.append(request)
            self._changed.notify()
        try:
            async with asyncio.timeout(self._seconds):
                return await request.future
        except TimeoutError:
            raise timed_out(self.estimator.retry_after()) from None
        finally:
            self._discard(request)

    def close(self) -> None:
        """End the threads and drop waiting texts; call it after draining."""
        with self._changed:
            self._is_closed = True
            for request in self._requests:
                request.is_live = False
            self._changed.notify_all()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _discard(self, request: PendingRequest) -> None:
        request.is_live = False
        with self._changed:
            if request.waiting:  # otherwise it has left the deque already
                self._requests.remove(request)

    def _run(self) -> None:
        """Decode batches until the batcher is closed. This is the main function of a thread."""
        if self._prepare is not None:
            self._prepare()
        while (batch := self._next_batch()) is not None:
            began = self.estimator.now()
            try:
                self._decode(batch)
            except Exception as error:  # perhaps of one text: requests with other texts must not fail
                self._decode_separately(batch, error)
            with self._changed:
                self._n_taken -= len(batch)
                self.work.add(len(batch), self.estimator.now() - began)

    def _next_batch(self) -> list[Job] | None:
        """Wait for texts and take a batch with equal search settings; None after `close`."""
        with self._changed:
            while True:
                while not self._requests and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return None
                self._gather()
                if self._requests:  # another thread may have taken all texts
                    break
            return self._take()

    def _take(self) -> list[Job]:
        """Take a batch for the request that was served longest ago and all requests with equal settings."""
        settings = self._requests[0].settings
        alike = [request for request in self._requests if request.settings is settings or request.settings == settings]
        jobs = _in_fair_order(alike)
        characters, work = self._batch_characters, self.estimator.batch(self.n_threads)
        # Take at most this thread's share of the texts: otherwise one thread serves nearly all clients.
        n_texts = self._n_taken + sum(len(request.waiting) for request in self._requests)
        share = max(MIN_SHARE, -(-n_texts // self.n_threads))
        batch: list[Job] = []
        while len(batch) < share and characters > 0 and work > 0 and (job := next(jobs, None)) is not None:
            batch.append(job)
            characters -= job[0].sizes[job[1]] + 1
            work -= _work(job)
        served = dict.fromkeys(request for request, _ in batch)
        others = [request for request in self._requests if request not in served]
        self._requests = deque([*others, *(request for request in served if request.waiting)])
        self._n_taken += len(batch)
        if self._requests:
            self._changed.notify()  # another thread may take the remaining texts
        return batch

    def _gather(self) -> None:
        """While another thread decodes, wait up to 30 ms for as long as new texts arrive.

        Clients that were answered together send their next requests together. Without the pause the first text would
        be decoded alone, and the other texts after it. A single client never waits, because no other thread decodes.
        """
        until = time.monotonic() + LONGEST_PAUSE
        n_requests = 0
        while self._n_taken and len(self._requests) > n_requests and time.monotonic() < until:
            n_requests = len(self._requests)
            self._changed.release()
            try:
                time.sleep(PAUSE)
            finally:
                self._changed.acquire()

    def _decode(self, batch: Sequence[Job]) -> None:
        began = self.estimator.now()
        block = self.translator.translate_block(
            [_text(job) for job in batch],
            batch[0][0].settings,
            should_stop=lambda index: not batch[index][0].is_live,
            on_partial={
                index: functools.partial(self._tell, request, number)
                for index, (request, number) in enumerate(batch)
                if request.tell is not None
            },
        )
        done = []
        with self._changed:
            self.estimator.learn(sum(map(_work, batch)), began)  # before a client can send its next request
            for (request, number), translations in zip(batch, block.outputs, strict=True):
                request.results[number] = translations
                request.n_left -= 1
                if request.n_left == 0 and request.is_live:
                    done.append(request)
        self._on_loop(lambda: _answer(done))

    def _decode_separately(self, batch: Sequence[Job], error: Exception) -> None:
        """Decode each request of a failed batch alone, and report the error to requests that fail again."""
        requests = dict.fromkeys(request for request, _ in batch)
        for request in requests:
            alone = [job for job in batch if job[0] is request]
            try:
                if len(requests) == 1:
                    raise error
                self._decode(alone)
            except Exception as failure:
                self._on_loop(lambda request=request, failure=failure: _fail(request, failure))  # type: ignore[misc]

    def _tell(self, request: PendingRequest, number: int, text: str) -> None:
        tell = request.tell
        if tell is not None:
            self._on_loop(lambda: tell(number, text) if request.is_live else None)

    def _on_loop(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(act)


def _in_fair_order(requests: Sequence[PendingRequest]) -> Iterator[Job]:
    """Yield the first texts of each new request, so that small requests do not wait for large ones; then the oldest.

    Serving all requests evenly would finish them, and hence their clients' next requests, all at the same time.
    """
    for request in requests:
        if len(request.waiting) == len(request.texts):
            for _ in range(min(FIRST_TEXTS, len(request.texts))):
                yield request, request.waiting.popleft()
    for request in sorted(requests, key=lambda request: request.number):
        while request.waiting:
            yield request, request.waiting.popleft()


def _text(job: Job) -> str:
    request, number = job
    return request.texts[number]


def _work(job: Job) -> int:
    request, number = job
    return request.settings.beam * (request.sizes[number] + PER_TEXT)


def _answer(requests: Sequence[PendingRequest]) -> None:
    for request in requests:
        if not request.future.done():
            request.future.set_result(request.results)


def _fail(request: PendingRequest, error: Exception) -> None:
    if not request.future.done():
        request.future.set_exception(error if isinstance(error, ApiError) else CannotTranslate(error))


class CannotTranslate(Exception):
    """The engine failed on a text (a bug, or a lack of memory). The log gets the cause, the client does not."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("Cannot translate text")
        self.__cause__ = cause
