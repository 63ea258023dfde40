"""The translation service behind every HTTP API: texts in, translations out."""

import asyncio
import dataclasses
import functools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import anyio.to_thread

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import has_words
from heedful.decoding.translation import Translation
from heedful.serving.auth import Keys
from heedful.serving.batching import (
    AdmissionQueue,
    Batcher,
    CannotTranslate,
    LatencyEstimator,
    NBestLists,
    PartialListener,
    size_of,
    work_of,
)
from heedful.serving.errors import ApiError, locate
from heedful.serving.html_segments import HtmlDocument
from heedful.serving.languages import Detected, Detector
from heedful.serving.limits import Limits, RateLimiter
from heedful.serving.metrics import Family, Metrics
from heedful.serving.model_registry import Pair, Pairs

log = logging.getLogger("heedful.serving")

AUTO = "auto"
WARM_UP = "Hello."
WARM_UPS = 2  # the first translation is slow; the second measures the speed of the model
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a failed warm-up is repeated
READY_BELOW = 0.9  # fill of the queue
Format = Literal["text", "html"]
T = TypeVar("T")


@dataclass(frozen=True)
class TranslationJob:
    """A request for translations."""

    texts: Sequence[str]
    source: str  # a code, or "auto"
    target: str
    settings: SearchSettings
    format: Format = "text"


@dataclass(frozen=True)
class Result:
    """The n best translations of each text, and the detected languages if the source was "auto"."""

    translations: NBestLists
    detected: list[Detected] | None = None


@dataclass(frozen=True)
class PreparedTexts:
    """The results of the work before a search."""

    pages: list[HtmlDocument] | None = None  # for the format "html"
    detected: list[Detected] | None = None  # for the source "auto"


@dataclass
class Service:
    """Everything that requests share. Call `start` and `close` in the event loop."""

    pairs: Pairs
    detector: Detector
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    beam: int = 5

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.rate = RateLimiter(self.limits.requests_per_minute)
        self.room = AdmissionQueue(requests=self.limits.queue_requests, characters=self.limits.queue_characters)
        self.is_warm = False
        self.n_connections: Callable[[], int] = lambda: 0  # set by the server
        self._batchers: dict[str, Batcher] = {}
        self._warming: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start a batcher for each model and the warm-up translations."""
        limits = self.limits
        for pair in self.pairs:
            self._batchers[pair.name] = Batcher(
                pair.translator,
                self.room,
                batch_characters=limits.batch_characters,
                seconds=limits.request_seconds,
                n_threads=pair.n_threads,
                prepare=pair.prepare,
            )
        self._warming = asyncio.create_task(self._warm_up())

    async def _warm_up(self) -> None:
        for name, batcher in self._batchers.items():
            n_done, pause = 0, FIRST_PAUSE
            while n_done < WARM_UPS:
                try:
                    await batcher.translate([WARM_UP], SearchSettings(beam=self.beam))
                    n_done += 1
                except (ApiError, CannotTranslate) as error:
                    if self.room.is_closed:
                        return
                    why = error.message if isinstance(error, ApiError) else locate(error)
                    log.warning("%s: the first translation failed, next attempt in %g s: %s", name, pause, why)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        self.is_warm = True

    def drain(self) -> None:
        """Accept no further requests; accepted requests are still answered."""
        self.room.is_closed = True

    async def close(self) -> None:
        """Stop the warm-up and all batchers."""
        self.drain()
        if self._warming is not None:
            self._warming.cancel()
        for batcher in self._batchers.values():
            batcher.close()

    @property
    def state(self) -> Literal["starting", "ready", "busy", "stopping"]:
        """The state that /ready reports."""
        if self.room.is_closed:
            return "stopping"
        if not self.is_warm:
            return "starting"
        return "ready" if self.room.fill < READY_BELOW else "busy"

    async def translate(
        self, job: TranslationJob, *, tell: PartialListener | None = None, accepted: Callable[[], None] = lambda: None
    ) -> Result:
        """Translate the texts of a job, or raise an ApiError.

        `tell` gets the index and the partial translation of a plain text during decoding. `accepted` is called when the
        job has its place in the queue; it is not called if no text needs a search.
        """
        ready = await self._prepared(job)
        detected = ready.detected
        sources = [job.source] * len(job.texts) if detected is None else [detection.language for detection in detected]
        pairs = [self.pairs.find(source, job.target) for source in sources]
        for pair in dict.fromkeys(pairs):
            if pair is not None:
                pair.require(job.settings)
        if ready.pages is not None:
            translations = await self._translate_html(ready.pages, pairs, job.settings)
        else:
            chosen = [job.settings] * len(job.texts)
            translations = await self._translate_texts(job.texts, pairs, chosen, tell, accepted)
        self.metrics.texts += len(job.texts)
        self.metrics.characters += sum(map(len, job.texts))
        return Result(translations, detected)

    async def detect(self, text: str) -> list[Detected]:
        """Rank the likeliest languages of a text, in a thread."""
        return await anyio.to_thread.run_sync(self.detector.rank, text)

    async def pair_for(self, text: str, source: str, target: str) -> Pair | None:
        """Find the model for one text; the source may be "auto". Return None if source and target are equal."""
        if source == AUTO:
            choose = functools.partial(self.detector.choose, text, self.pairs.sources_for(target))
            source = (await anyio.to_thread.run_sync(choose)).language
        return self.pairs.find(source, target)

    async def _prepared(self, job: TranslationJob) -> PreparedTexts:
        """Parse HTML and detect languages in a thread, with a place in the queue to bound this work."""
        if job.source != AUTO and job.format == "text":
            return PreparedTexts()
        first = next(iter(self._batchers.values()))  # only for the time after which a rejected client should retry
        with self.room.preparing(sum(map(size_of, job.texts)), first.estimator):
            return await anyio.to_thread.run_sync(self._prepare, job)

    def _prepare(self, job: TranslationJob) -> PreparedTexts:
        pages = [HtmlDocument(text) for text in job.texts] if job.format == "html" else None
        if job.source != AUTO:
            return PreparedTexts(pages)
        allowed = self.pairs.sources_for(job.target)
        texts = job.texts if pages is None else [" ".join(page.texts) for page in pages]
        return PreparedTexts(pages, [self.detector.choose(text, allowed) for text in texts])

    async def _translate_html(
        self, pages: Sequence[HtmlDocument], pairs: Sequence[Pair | None], settings: SearchSettings
    ) -> NBestLists:
        """Translate the texts of HTML documents. Texts with inline tags need attention weights, to place the tags."""
        texts = [text for page in pages for text in page.texts]
        pair_of = [pair for page, pair in zip(pages, pairs, strict=True) for _ in page.texts]
        plain = dataclasses.replace(settings, n_best=1, attention=False)
        aligned = dataclasses.replace(plain, attention=True)
        chosen = [aligned if has_tags else plain for page in pages for has_tags in page.has_tags]
        results = iter(await self._translate_texts(texts, pair_of, chosen))
        best = [[next(results)[0] for _ in page.texts] for page in pages]
        filled = await anyio.to_thread.run_sync(lambda: list(map(HtmlDocument.fill, pages, best)))
        return [[_page(text, parts)] for text, parts in zip(filled, best, strict=True)]

    async def _translate_texts(
        self,
        texts: Sequence[str],
        pairs: Sequence[Pair | None],
        settings: Sequence[SearchSettings],
        tell: PartialListener | None = None,
        accepted: Callable[[], None] = lambda: None,
    ) -> NBestLists:
        """Translate each text with its model. Texts without words or in the target language are copied."""
        results: NBestLists = [[Translation(text)] for text in texts]
        groups: dict[tuple[str, bool], list[int]] = {}  # (model, whether attention is needed) -> indices of texts
        for index, (text, pair) in enumerate(zip(texts, pairs, strict=True)):
            if pair is not None and has_words(text):
                groups.setdefault((pair.name, settings[index].attention), []).append(index)

        async def group(name: str, indices: list[int]) -> None:
            tell_one = None if tell is None else lambda i, text: tell(indices[i], text)
            chosen = [texts[index] for index in indices]
            translated = await self._batchers[name].search(chosen, settings[indices[0]], tell=tell_one)
            for index, translations in zip(indices, translated, strict=True):
                results[index] = translations

        if not groups:
            return results
        work: Counter[LatencyEstimator] = Counter()
        for (name, _), indices in groups.items():
            chosen = [texts[index] for index in indices]
            work[self._batchers[name].estimator] += work_of(chosen, beam=settings[indices[0]].beam)
        n_characters = sum(size_of(texts[index]) for indices in groups.values() for index in indices)
        with self.room.place(n_characters, work):
            accepted()
            await _together([group(name, indices) for (name, _), indices in groups.items()])
        return results

    def numbers(self) -> list[Family]:
        """Return the metrics of the queue and the decoding."""
        per_pair = [({"pair": name}, batcher.work) for name, batcher in self._batchers.items()]
        return [
            ("queue_requests", "gauge", "Requests accepted, not yet answered.", [("", {}, self.room.requests)]),
            (
                "queue_characters",
                "gauge",
                "Characters of those, as the limit counts them.",
                [("", {}, self.room.characters)],
            ),
            ("accepted_total", "counter", "Requests let into the queue.", [("", {}, self.room.accepted)]),
            ("answered_total", "counter", "Requests that left it with an answer.", [("", {}, self.room.answered)]),
            ("ready", "gauge", "1 if the server is ready.", [("", {}, int(self.state == "ready"))]),
            ("batches_total", "counter", "Batches decoded.", [("", at, work.batches) for at, work in per_pair]),
            ("batch_texts_total", "counter", "Texts in them.", [("", at, work.texts) for at, work in per_pair]),
            ("decode_seconds_total", "counter", "Time in them.", [("", at, work.seconds) for at, work in per_pair]),
        ]


def _page(text: str, parts: Sequence[Translation]) -> Translation:
    """Combine the translations of a document's texts into one, scored as a text of several segments."""
    return Translation(
        text,
        score=sum((part.score for part in parts), start=0.0),
        normalized_score=sum((part.normalized_score for part in parts), start=0.0),
        complete=all(part.complete for part in parts),
    )


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently; if one fails, cancel the remaining ones."""
    if len(works) == 1:
        return await works[0]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def cancel_on_disconnect(work: Coroutine[Any, Any, T], gone: Callable[[], Coroutine[Any, Any, None]]) -> T:
    """Await `work`; if `gone` ends first, cancel it and raise ClientDisconnected."""
    task = asyncio.current_task()
    assert task is not None
    is_working, is_gone = True, False

    def leave(watch: "asyncio.Future[None]") -> None:
        nonlocal is_gone
        if is_working and not watch.cancelled():
            is_gone = True
            task.cancel()

    watch = asyncio.ensure_future(gone())
    watch.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if not is_gone or task.uncancel() > 0:  # cancelled for another reason
            raise
        raise ClientDisconnected from None
    finally:
        is_working = False
        watch.cancel()


class ClientDisconnected(ApiError):
    """The client has closed the connection."""

    def __init__(self) -> None:
        super().__init__(499, "Client closed the connection")
