"""POST /api/v1/look: everything that happens inside the model while it translates one sentence (docs/look.md)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from heedful.errors import UserError
from heedful.serving.batching import LatencyEstimator, size_of, work_of
from heedful.serving.errors import ApiError, late
from heedful.serving.model_registry import Pair
from heedful.serving.request_parsing import (
    check_key,
    languages_of,
    parse,
    read_body,
    require_field,
    texts_of,
    wait_for_disconnect,
)
from heedful.serving.service import Service, cancel_on_disconnect

if TYPE_CHECKING:
    from heedful.insight.inputs import LookModel

MOST = 512  # numbers in a list
T = TypeVar("T")


class HeadAsked(Struct, forbid_unknown_fields=True):
    kind: Literal["encoder", "decoder", "cross"]
    layer: Annotated[int, Meta(ge=0)]
    head: Annotated[int, Meta(ge=0)]


Numbers = Annotated[list[Annotated[int, Meta(ge=0, le=10**9)]], Meta(max_length=MOST)]


class LookAsked(Struct, forbid_unknown_fields=True):
    q: str
    source: str
    target: str
    reference: str | None = None  # show this translation in place of the model's own
    prefix: Numbers = msgspec.field(default_factory=list)  # ids that the translation begins with
    without_heads: Annotated[list[HeadAsked], Meta(max_length=MOST)] = msgspec.field(default_factory=list)
    masked_words: Numbers = msgspec.field(default_factory=list)
    beam: Annotated[int, Meta(ge=1)] | None = None
    api_key: str | None = None


class LookRoutes:
    """One at a time: a look is a hundred times the work of a translation, and must not keep translations waiting."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look")
        self._is_closed = False
        self._subjects: dict[str, LookModel] = {}
        self._backlog = LatencyEstimator(seconds=service.limits.request_seconds)

    def close(self) -> None:
        """Begin nothing more, and wait for nothing that has begun."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def look(self, request: Request) -> Response:
        service = self.service
        asked = parse(await read_body(request, service.limits), LookAsked)
        client = check_key(request, {"api_key": asked.api_key}, service)
        [text] = texts_of(require_field({"q": asked.q}, "q"), service.limits)
        texts_of(asked.reference or "", service.limits)  # as long as a text may be, but it is none to be translated
        source, target = languages_of({"source": asked.source, "target": asked.target}, service)
        if (asked.beam or 1) > service.limits.beam:
            raise ApiError(400, f"Invalid request: beam parameter must be <= {service.limits.beam}")
        pair = await self._pair(text, source, target)
        service.rate.spend(client, 1)
        trace = await cancel_on_disconnect(self._within_limits(asked, pair), lambda: wait_for_disconnect(request))
        return Response(trace, media_type="application/json")

    async def _pair(self, text: str, source: str, target: str) -> Pair:
        pair = await self.service.pair_for(text, source, target)
        if pair is None:
            raise ApiError(400, "Invalid request: source and target are the same language, so nothing is translated")
        return pair

    async def _within_limits(self, asked: LookAsked, pair: Pair) -> str:
        """The trace, or a Refusal. That the model must first be loaded into torch is not counted as the client's time.

        A look cannot be stopped. It keeps its place, and its work ahead of others, until its thread is done with it.
        """
        loaded = asyncio.Event()
        task = asyncio.ensure_future(self._placed(asked, pair, loaded))
        task.add_done_callback(lambda _: loaded.set())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, if nobody waits any more
        try:
            await loaded.wait()
            async with asyncio.timeout(self.service.limits.request_seconds):
                return await asyncio.shield(task)
        except TimeoutError:
            raise late(self._backlog.retry_after()) from None
        finally:
            task.cancel()

    async def _placed(self, asked: LookAsked, pair: Pair, loaded: asyncio.Event) -> str:
        work = work_of([asked.q], beam=asked.beam or self.service.beam)
        with self.service.room.place(size_of(asked.q), {self._backlog: work}):
            subject = await self._in_thread(lambda: self._subject(pair))
            loaded.set()
            return await self._in_thread(lambda: self._look(asked, subject, work))

    async def _in_thread(self, act: Callable[[], T]) -> T:
        """If it is cancelled, what has not begun never does; what has is waited for."""
        future = self._thread.submit(act)
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not future.cancel() and not self._is_closed:
                await asyncio.wait([waiting])
            raise

    def _subject(self, pair: Pair) -> "LookModel":
        from heedful.insight.inputs import open_subject

        if pair.name not in self._subjects:
            self._subjects[pair.name] = open_subject(pair.translator)
        return self._subjects[pair.name]

    def _look(self, asked: LookAsked, subject: "LookModel", work: int) -> str:
        began = self._backlog.now()
        try:
            return self._trace(asked, subject)
        finally:
            self._backlog.learn(work, began)

    def _trace(self, asked: LookAsked, subject: "LookModel") -> str:
        from heedful.insight.look import look

        try:
            seen = look(
                subject,
                asked.q,
                target=asked.reference,
                beam=asked.beam or self.service.beam,
                prefix=asked.prefix,
                without_heads=[(head.kind, head.layer, head.head) for head in asked.without_heads],
                masked_words=asked.masked_words,
            )
        except UserError as error:
            raise ApiError(400, f"Invalid request: {error}"[:300]) from None
        return seen.to_json()
