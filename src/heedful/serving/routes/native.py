"""heedful's own API below /api/v1: scores, n-best lists, alignments, and streamed translations."""

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
    admit,
    answer_job,
    authenticate,
    languages_of,
    parse,
    read_body,
    texts_of,
    until_disconnect,
)
from heedful.serving.service import Result, Service, TranslationJob


class TranslateBody(Struct, forbid_unknown_fields=True):
    """The body of /api/v1/translate and /api/v1/translate/stream."""

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
    """One translation. The score is its log-probability by the model (natural logarithm), not a measure of quality."""

    text: str
    score: float
    normalized_score: float  # what the search ranked it by
    tokens: tuple[str, ...]
    complete: bool  # false if the translation was cut at its maximum length
    alignment: tuple[tuple[int, int], ...] | msgspec.UnsetType = msgspec.UNSET  # (source token, target token)


class Detection(Struct):
    """The language of a text whose source was "auto"."""

    language: str
    confidence: float


class TextTranslations(Struct, omit_defaults=True):
    """The translations of one text."""

    source_tokens: tuple[str, ...]
    candidates: list[Candidate]  # best first
    detected: Detection | msgspec.UnsetType = msgspec.UNSET


class TranslateResponse(Struct):
    translations: list[TextTranslations]


class NativeApi:
    def __init__(self, service: Service) -> None:
        self.service = service

    async def translate(self, request: Request) -> Response:
        job = await self._job(request)
        result = await answer_job(request, job, self.service)
        return JSON(TranslateResponse([_answer(result, index) for index in range(len(job.texts))]))

    async def stream(self, request: Request) -> Response:
        """Send server-sent events: `partial` during decoding, `translation` for each text, `done`; or `error`."""
        job = await self._job(request)
        if job.format != "text":
            raise ApiError(400, "Invalid request: only plain text is streamed")
        stream = TranslationStream(self.service, job)
        await until_disconnect(request, stream.accepted())
        return StreamingResponse(stream.events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _job(self, request: Request) -> TranslationJob:
        service, limits = self.service, self.service.limits
        body = parse(await read_body(request, limits), TranslateBody)
        client = authenticate(request, {"api_key": body.api_key}, service)
        if body.q in ("", []):
            raise ApiError(400, "Invalid request: missing q parameter")
        texts = texts_of(body.q, limits)
        source, target = languages_of({"source": body.source, "target": body.target}, service)
        return admit(TranslationJob(texts, source, target, self._settings(body), body.format), client, service)

    def _settings(self, body: TranslateBody) -> SearchSettings:
        limits = self.service.limits
        for name, is_used in (("n_best", body.n_best > 1), ("alignment", body.alignment)):
            if is_used and body.format != "text":
                raise ApiError(400, f"Invalid request: {name} parameter is for plain text only")
        beam = max(self.service.beam, body.n_best) if body.beam is None else body.beam
        for name, value, most in (
            ("beam", beam, limits.beam),
            ("n_best", body.n_best, min(beam, limits.beam)),
            ("max_len", body.max_len or 1, limits.max_len),
        ):
            if value > most:
                raise ApiError(400, f"Invalid request: {name} parameter must be <= {most}")
        try:
            return SearchSettings(
                beam=beam,
                n_best=body.n_best,
                length_penalty=body.length_penalty,
                max_len=body.max_len,
                attention=body.alignment,
            )
        except UserError as error:
            raise ApiError(400, f"Invalid request: {error}") from None


class TranslationStream:
    """A translation job in progress, as server-sent events."""

    def __init__(self, service: Service, job: TranslationJob) -> None:
        self._n_texts = len(job.texts)
        self._partial: dict[int, str] = {}  # partial translations that have not been sent yet
        self._news, self._is_accepted = asyncio.Event(), asyncio.Event()
        self._work = asyncio.ensure_future(service.translate(job, tell=self._tell, accepted=self._is_accepted.set))
        self._work.add_done_callback(self._done)

    async def accepted(self) -> None:
        """Wait until the job is queued or done. Raise its error: nothing has been sent yet, so it has a status."""
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
                for index, text in sorted(self._partial.items()):  # only the latest text is sent
                    yield _event("partial", {"index": index, "text": text})
                self._partial.clear()
            result = work.result()
            for index in range(self._n_texts):
                yield _event("translation", {"index": index, "answer": _answer(result, index)})
            yield _event("done", {"texts": self._n_texts})
        except (ApiError, CannotTranslate) as error:
            yield _event("error", {"error": error.message if isinstance(error, ApiError) else "Cannot translate text"})
        finally:
            work.cancel()  # if the client disconnected, its texts leave the queue

    def _tell(self, index: int, text: str) -> None:
        self._partial[index] = text
        self._news.set()

    def _done(self, work: "asyncio.Future[Result]") -> None:
        self._is_accepted.set()
        self._news.set()
        if not work.cancelled():
            work.exception()  # without this, asyncio warns about the exception if the client has disconnected


def _answer(result: Result, index: int) -> TextTranslations:
    translations = result.translations[index]
    detection: Detection | msgspec.UnsetType = msgspec.UNSET
    if result.detected is not None:
        detected = result.detected[index]
        detection = Detection(detected.language, detected.confidence)
    candidates = [_candidate(translation) for translation in translations]
    return TextTranslations(translations[0].source_tokens, candidates, detection)


def _candidate(translation: Translation) -> Candidate:
    alignment = msgspec.UNSET if translation.alignment is None else translation.alignment
    return Candidate(
        text=translation.text,
        score=translation.score,
        normalized_score=translation.normalized_score,
        tokens=translation.tokens,
        complete=translation.complete,
        alignment=alignment,
    )


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
