"""POST /api/v1/look: everything that happens inside the model while it translates one sentence (docs/look.md)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from heedful.errors import UserError
from heedful.serving.asking import check_key, gone, languages_of, missing, parse, read_body, texts_of
from heedful.serving.backlog import Backlog, work_of
from heedful.serving.pairs import Pair
from heedful.serving.refusals import Refusal, late
from heedful.serving.service import Service, unless_gone

if TYPE_CHECKING:
    from heedful.insight.subject import Subject

MOST = 512  # numbers in a list


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


class Looking:
    """One at a time: a look is a hundred times the work of a translation, and must not keep translations waiting."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look")
        self._subjects: dict[str, Subject] = {}
        self._backlog = Backlog(seconds=service.limits.request_seconds)

    async def look(self, request: Request) -> Response:
        service = self.service
        asked = parse(await read_body(request, service.limits), LookAsked)
        client = check_key(request, {"api_key": asked.api_key}, service)
        texts = texts_of([missing({"q": asked.q}, "q"), asked.reference or ""], service.limits)
        source, target = languages_of({"source": asked.source, "target": asked.target}, service)
        if (asked.beam or 1) > service.limits.beam:
            raise Refusal(400, f"Invalid request: beam parameter must be <= {service.limits.beam}")
        pair = await self._pair(texts[0], source, target)
        service.rate.spend(client, 1)
        trace = await unless_gone(self._within_limits(asked, pair), lambda: gone(request))
        return Response(trace, media_type="application/json")

    async def _pair(self, text: str, source: str, target: str) -> Pair:
        pair = await self.service.pair_for(text, source, target)
        if pair is None:
            raise Refusal(400, "Invalid request: source and target are the same language, so nothing is translated")
        return pair

    async def _within_limits(self, asked: LookAsked, pair: Pair) -> str:
        work = work_of([asked.q], beam=asked.beam or self.service.beam)
        with self.service.room.place(len(asked.q), work, self._backlog):
            try:
                async with asyncio.timeout(self.service.limits.request_seconds):
                    return await asyncio.get_running_loop().run_in_executor(self._thread, self._look, asked, pair, work)
            except TimeoutError:
                raise late(self._backlog.retry_after()) from None

    def _look(self, asked: LookAsked, pair: Pair, work: int) -> str:
        began = self._backlog.now()
        try:
            return self._trace(asked, pair)
        finally:
            self._backlog.learn(work, began)

    def _trace(self, asked: LookAsked, pair: Pair) -> str:
        from heedful.insight.look import look
        from heedful.insight.subject import open_subject

        if pair.name not in self._subjects:
            self._subjects[pair.name] = open_subject(pair.translator)
        try:
            seen = look(
                self._subjects[pair.name],
                asked.q,
                target=asked.reference,
                beam=asked.beam or self.service.beam,
                prefix=asked.prefix,
                without_heads=[(head.kind, head.layer, head.head) for head in asked.without_heads],
                masked_words=asked.masked_words,
            )
        except UserError as error:
            raise Refusal(400, f"Invalid request: {error}"[:300]) from None
        return seen.to_json()
