"""heedful's own API below /api/v1: scores, n-best, alignments, and answers that come as they are written."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import Translation
from heedful.errors import UserError
from heedful.serving.batching import CannotTranslate
from heedful.serving.errors import ApiError
from heedful.serving.request_parsing import (
    JSON,
    check_key,
    check_pair,
    languages_of,
    parse,
    read_body,
    texts_of,
    wait_for_disconnect,
)
from heedful.serving.service import Result, Service, TranslationJob, cancel_on_disconnect


class TranslateBody(Struct, forbid_unknown_fields=True):
    """The body of both requests."""

    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    beam: Annotated[int, Meta(ge=1)] | None = None
    n_best: Annotated[int, Meta(ge=1)] = 1
    length_penalty: Annotated[float, Meta(ge=-10.0, le=10.0)] = 1.0
    max_len: Annotated[int, Meta(ge=1)] | None = None
    alignment: bool = False
    api_key: str | None = None


class Candidate(Struct, omit_defaults=True):
    """One translation. The score is the natural logarithm of its probability by the model, not a mark for quality."""

    text: str
    score: float
    normalized_score: float  # what the search ranked it by
    tokens: tuple[str, ...]
    complete: bool  # it ended by itself, not at the limit of its length
    alignment: tuple[tuple[int, int], ...] | msgspec.UnsetType = msgspec.UNSET  # source token, token


class Detection(Struct):
    language: str
    confidence: float


class Answer(Struct, omit_defaults=True):
    """What is said of one text."""

    source_tokens: tuple[str, ...]
    candidates: list[Candidate]  # best first
    detected: Detection | msgspec.UnsetType = msgspec.UNSET


class Answers(Struct):
    translations: list[Answer]


class Api:
    def __init__(self, service: Service) -> None:
        self.service = service

    async def translate(self, request: Request) -> Response:
        wish = await self._wish(request)
        result = await cancel_on_disconnect(self.service.translate(wish), lambda: wait_for_disconnect(request))
        return JSON(Answers([_answer(result, number) for number in range(len(wish.texts))]))

    async def stream(self, request: Request) -> Response:
        """Server-sent events: `partial` while a text is written, `translation` for each, `done`; or `error`."""
        wish = await self._wish(request)
        if wish.format != "text":
            raise ApiError(400, "Invalid request: only plain text is streamed")
        writing = Writing(self.service, wish)
        await cancel_on_disconnect(writing.accepted(), lambda: wait_for_disconnect(request))
        return StreamingResponse(
            writing.events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _wish(self, request: Request) -> TranslationJob:
        service, limits = self.service, self.service.limits
        asked = parse(await read_body(request, limits), TranslateBody)
        client = check_key(request, {"api_key": asked.api_key}, service)
        if asked.q in ("", []):
            raise ApiError(400, "Invalid request: missing q parameter")
        texts = texts_of(asked.q, limits)
        source, target = languages_of({"source": asked.source, "target": asked.target}, service)
        wish = TranslationJob(texts, source, target, self._settings(asked), asked.format)
        check_pair(wish, service)
        service.rate.spend(client, len(texts))
        return wish

    def _settings(self, asked: TranslateBody) -> SearchSettings:
        limits = self.service.limits
        for name, is_given in (("n_best", asked.n_best > 1), ("alignment", asked.alignment)):
            if is_given and asked.format != "text":
                raise ApiError(400, f"Invalid request: {name} parameter is for plain text only")
        beam = max(self.service.beam, asked.n_best) if asked.beam is None else asked.beam
        for name, value, most in (
            ("beam", beam, limits.beam),
            ("n_best", asked.n_best, min(beam, limits.beam)),
            ("max_len", asked.max_len or 1, limits.max_len),
        ):
            if value > most:
                raise ApiError(400, f"Invalid request: {name} parameter must be <= {most}")
        try:
            return SearchSettings(
                beam=beam,
                n_best=asked.n_best,
                length_penalty=asked.length_penalty,
                max_len=asked.max_len,
                attention=asked.alignment,
            )
        except UserError as error:
            raise ApiError(400, f"Invalid request: {error}") from None


class Writing:
    """A wish that is being fulfilled, told as server-sent events."""

    def __init__(self, service: Service, wish: TranslationJob) -> None:
        self._n_texts = len(wish.texts)
        self._written: dict[int, str] = {}  # since it was last told
        self._news, self._is_accepted = asyncio.Event(), asyncio.Event()
        self._work = asyncio.ensure_future(service.translate(wish, tell=self._tell, accepted=self._is_accepted.set))
        self._work.add_done_callback(self._done)

    async def accepted(self) -> None:
        """Until the work has its place in the queue, or is done; what refuses it is raised: nothing was told yet."""
        try:
            await self._is_accepted.wait()
        except asyncio.CancelledError:
            self._work.cancel()
            raise
        if self._work.done():
            self._work.result()

    async def events(self) -> AsyncIterator[bytes]:
        work = self._work
        try:
            while not work.done():
                await self._news.wait()
                self._news.clear()
                for number, text in sorted(self._written.items()):  # only the latest is sent
                    yield _event("partial", {"index": number, "text": text})
                self._written.clear()
            result = work.result()
            for number in range(self._n_texts):
                yield _event("translation", {"index": number, "answer": _answer(result, number)})
            yield _event("done", {"texts": self._n_texts})
        except (ApiError, CannotTranslate) as error:
            yield _event("error", {"error": error.words if isinstance(error, ApiError) else "Cannot translate text"})
        finally:
            work.cancel()  # also when the client is gone: its texts leave the queue

    def _tell(self, number: int, text: str) -> None:
        self._written[number] = text
        self._news.set()

    def _done(self, work: "asyncio.Future[Result]") -> None:
        self._is_accepted.set()
        self._news.set()
        if not work.cancelled():
            work.exception()  # seen: who is gone does not ask for it


def _answer(result: Result, number: int) -> Answer:
    translations = result.translations[number]
    detected: Detection | msgspec.UnsetType = msgspec.UNSET
    if result.detected is not None:
        one = result.detected[number]
        detected = Detection(one.language, one.confidence)
    return Answer(translations[0].source_tokens, [_candidate(one) for one in translations], detected)


def _candidate(one: Translation) -> Candidate:
    alignment = msgspec.UNSET if one.alignment is None else one.alignment
    return Candidate(one.text, one.score, one.normalized_score, one.tokens, one.complete, alignment)


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
