"""POST /api/v1/look: the trace of one translation, with everything that happens inside the model (docs/look.md)."""

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
from heedful.serving.errors import ApiError, timed_out
from heedful.serving.model_registry import Pair
from heedful.serving.request_parsing import (
    authenticate,
    languages_of,
    parse,
    read_body,
    require_field,
    texts_of,
    until_disconnect,
)
from heedful.serving.service import Service

if TYPE_CHECKING:
    from heedful.insight.inputs import LookModel

MOST = 512  # items in a list of a request
T = TypeVar("T")


class HeadBody(Struct, forbid_unknown_fields=True):
    """A head to ablate; layer and head count from 0."""

    kind: Literal["encoder", "decoder", "cross"]
    layer: Annotated[int, Meta(ge=0)]
    head: Annotated[int, Meta(ge=0)]


Numbers = Annotated[list[Annotated[int, Meta(ge=0, le=10**9)]], Meta(max_length=MOST)]


class LookBody(Struct, forbid_unknown_fields=True):
    """The body of a request."""

    q: str
    source: str
    target: str
    reference: str | None = None  # show this translation in place of the model's own
    prefix: Numbers = msgspec.field(default_factory=list)  # ids that the translation begins with
    without_heads: Annotated[list[HeadBody], Meta(max_length=MOST)] = msgspec.field(default_factory=list)
    masked_words: Numbers = msgspec.field(default_factory=list)
    beam: Annotated[int, Meta(ge=1)] | None = None
    api_key: str | None = None


class LookRoutes:
    """Runs looks one at a time in a separate thread, because a look costs as much as a hundred translations."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look")
        self._is_closed = False
        self._models: dict[str, LookModel] = {}
        self._estimator = LatencyEstimator(seconds=service.limits.request_seconds)

    def close(self) -> None:
        """Start no further look, and do not wait for a running one."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def look(self, request: Request) -> Response:
        service = self.service
        body = parse(await read_body(request, service.limits), LookBody)
        client = authenticate(request, {"api_key": body.api_key}, service)
        [text] = texts_of(require_field({"q": body.q}, "q"), service.limits)
        texts_of(body.reference or "", service.limits)  # checks its length
        source, target = languages_of({"source": body.source, "target": body.target}, service)
        if (body.beam or 1) > service.limits.beam:
            raise ApiError(400, f"Invalid request: beam parameter must be <= {service.limits.beam}")
        pair = await self._pair(text, source, target)
        service.rate.spend(client, 1)
        trace = await until_disconnect(request, self._within_limits(body, pair))
        return Response(trace, media_type="application/json")

    async def _pair(self, text: str, source: str, target: str) -> Pair:
        pair = await self.service.pair_for(text, source, target)
        if pair is None:
            raise ApiError(400, "Invalid request: source and target are the same language")
        return pair

    async def _within_limits(self, body: LookBody, pair: Pair) -> str:
        """Return the trace within the time limit, which does not include loading the model into torch.

        A running look cannot be stopped, so it keeps its place in the queue until its thread has finished.
        """
        loaded = asyncio.Event()
        task = asyncio.ensure_future(self._queued(body, pair, loaded))
        task.add_done_callback(lambda _: loaded.set())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio warns
        try:
            await loaded.wait()
            async with asyncio.timeout(self.service.limits.request_seconds):
                return await asyncio.shield(task)
        except TimeoutError:
            raise timed_out(self._estimator.retry_after()) from None
        finally:
            task.cancel()

    async def _queued(self, body: LookBody, pair: Pair, loaded: asyncio.Event) -> str:
        work = work_of([body.q], beam=body.beam or self.service.beam)
        with self.service.room.place(size_of(body.q), {self._estimator: work}):
            model = await self._in_thread(lambda: self._model(pair))
            loaded.set()
            return await self._in_thread(lambda: self._look(body, model, work))

    async def _in_thread(self, act: Callable[[], T]) -> T:
        """Run a function in the look thread. If cancelled, wait for the function only if it has started."""
        future = self._thread.submit(act)
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not future.cancel() and not self._is_closed:
                await asyncio.wait([waiting])
            raise

    def _model(self, pair: Pair) -> "LookModel":
        from heedful.insight.inputs import open_look_model

        if pair.name not in self._models:
            self._models[pair.name] = open_look_model(pair.translator)
        return self._models[pair.name]

    def _look(self, body: LookBody, model: "LookModel", work: int) -> str:
        began = self._estimator.now()
        try:
            return self._trace(body, model)
        finally:
            self._estimator.learn(work, began)

    def _trace(self, body: LookBody, model: "LookModel") -> str:
        from heedful.insight.look import look

        try:
            result = look(
                model,
                body.q,
                target=body.reference,
                beam=body.beam or self.service.beam,
                prefix=body.prefix,
                without_heads=[(head.kind, head.layer, head.head) for head in body.without_heads],
                masked_words=body.masked_words,
            )
        except UserError as error:
            raise ApiError(400, f"Invalid request: {error}"[:300]) from None
        return result.to_json()
