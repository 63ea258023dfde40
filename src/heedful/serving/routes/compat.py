"""The HTTP APIs of DeepL (v2), Google Translate (v2) and OpenNMT's server, for their existing clients.

All use the same service with the same limits and keys; requests, responses and errors have the shape of the original
API. Features that heedful lacks (glossaries, formality, documents) are rejected, not ignored.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from heedful.decoding.search.settings import SearchSettings
from heedful.serving.errors import ApiError, quoted
from heedful.serving.languages import base, name_of
from heedful.serving.request_parsing import (
    JSON,
    Values,
    admit,
    answer_job,
    authenticate,
    parse,
    read_body,
    read_values,
    require_field,
    texts_of,
)
from heedful.serving.service import AUTO, Format, Result, Service, TranslationJob

Endpoint = Callable[[Request], Awaitable[Response]]
# The options of DeepL that heedful implements, or whose every value describes what heedful does.
SUPPORTED = {
    "text", "target_lang", "source_lang", "tag_handling", "split_sentences", "preserve_formatting",
    "show_billed_characters", "model_type", "auth_key",
}  # fmt: skip


class OpenNMTSegment(Struct):
    """One item of an OpenNMT request; `id` is the number of a model."""

    src: str
    id: int = 0


class CompatApis:
    """The endpoints of the three APIs."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._search = SearchSettings(beam=service.beam)

    def routes(self) -> list[Route]:
        return [
            Route("/v2/translate", _with_errors(self.deepl, _deepl_error), methods=["POST"]),
            Route("/v2/languages", _with_errors(self.deepl_languages, _deepl_error), methods=["GET", "POST"]),
            Route("/v2/usage", _with_errors(self.deepl_usage, _deepl_error), methods=["GET", "POST"]),
            Route("/language/translate/v2", _with_errors(self.google, _google_error), methods=["GET", "POST"]),
            Route("/translator/translate", _with_errors(self.opennmt, _opennmt_error), methods=["POST"]),
            Route("/translator/models", _with_errors(self.opennmt_models, _opennmt_error)),
        ]

    # DeepL, version 2

    async def deepl(self, request: Request) -> Response:
        values, _ = await read_values(request, self.service.limits, repeated=("text",))
        client = self._client(request, _deepl_key(request, values))
        for name, value in values.items():
            is_default = value in (None, "", False, "0", "default") or str(value).startswith("prefer_")
            if name not in SUPPORTED and not is_default:
                raise ApiError(400, f"{quoted(name)} is not supported by this server: leave it out")
        markup = values.get("tag_handling") or "text"
        if markup not in ("text", "html"):
            raise ApiError(400, f"tag_handling: {quoted(markup)} is not supported, html is")
        source, target = values.get("source_lang") or AUTO, values.get("target_lang")
        job = self._job(client, "text", values, source, target, "html" if markup == "html" else "text")
        result = await answer_job(request, job, self.service)
        items: list[dict[str, object]] = [
            {"detected_source_language": code.upper(), "text": translations[0].text}
            for code, translations in zip(_languages(job, result), result.translations, strict=True)
        ]
        if values.get("show_billed_characters"):
            items = [{**item, "billed_characters": len(text)} for item, text in zip(items, job.texts, strict=True)]
        return JSON({"translations": items})

    async def deepl_languages(self, request: Request) -> Response:
        values, _ = await read_values(request, self.service.limits)
        self._client(request, _deepl_key(request, values))
        pairs = list(self.service.pairs)
        is_target = values.get("type") == "target"
        codes = dict.fromkeys(pair.target if is_target else pair.source for pair in pairs)
        more = {"supports_formality": False} if is_target else {}
        return JSON([{"language": code.upper(), "name": name_of(code), **more} for code in codes])

    async def deepl_usage(self, request: Request) -> Response:
        """Report zero usage and a limit that is never reached: nothing is billed."""
        values, _ = await read_values(request, self.service.limits)
        self._client(request, _deepl_key(request, values))
        return JSON({"character_count": 0, "character_limit": 1_000_000_000_000})

    # Google, version 2

    async def google(self, request: Request) -> Response:
        values, _ = await read_values(request, self.service.limits, repeated=("q",))
        key = request.query_params.get("key") or request.headers.get("x-goog-api-key") or values.get("key")
        client = self._client(request, key)
        kind = values.get("format") or "html"  # Google's default
        if kind not in ("text", "html"):
            raise ApiError(400, f"format: {quoted(kind)} is not supported")
        source, target = values.get("source") or AUTO, values.get("target")
        job = self._job(client, "q", values, source, target, "html" if kind == "html" else "text")
        result = await answer_job(request, job, self.service)
        items: list[dict[str, object]] = [{"translatedText": best.text} for best, *_ in result.translations]
        if job.source == AUTO:
            codes = _languages(job, result)
            items = [{**item, "detectedSourceLanguage": code} for item, code in zip(items, codes, strict=True)]
        return JSON({"data": {"translations": items}})

    # OpenNMT's server

    async def opennmt(self, request: Request) -> Response:
        body = await read_body(request, self.service.limits)
        client = self._client(request, None)
        segments = parse(body, list[OpenNMTSegment])
        pairs = list(self.service.pairs)
        ids = {segment.id for segment in segments}
        if len(ids) != 1 or not 0 <= min(ids) < len(pairs):
            raise ApiError(400, f"id: one model for all segments, by its number from 0 to {len(pairs) - 1}")
        pair = pairs[ids.pop()]
        texts = [segment.src for segment in segments]
        job = self._job(client, "src", {"src": texts}, pair.source, pair.target, "text")
        result = await answer_job(request, job, self.service)
        items = [
            {"src": text, "tgt": best.text, "n_best": 1, "pred_score": best.score}
            for text, (best, *_) in zip(job.texts, result.translations, strict=True)
        ]
        return JSON([items])

    async def opennmt_models(self, request: Request) -> Response:
        self._client(request, None)
        return JSON(
            [
                {"model_id": number, "status": "ready", "source": pair.source, "target": pair.target}
                for number, pair in enumerate(self.service.pairs)
            ]
        )

    # Shared by all three

    def _client(self, request: Request, key: object) -> str:
        """Authenticate the client. These APIs answer 403 for a missing key, too."""
        try:
            return authenticate(request, {"api_key": key}, self.service)
        except ApiError as error:
            raise ApiError(403, error.message) from None

    def _job(
        self, client: str, field: str, values: Values, source: object, target: object, format: Format
    ) -> TranslationJob:
        texts = texts_of(require_field(values, field), self.service.limits)
        source_code = AUTO if source == AUTO else self._code(source)
        job = TranslationJob(texts, source_code, self._code(target), self._search, format)
        return admit(job, client, self.service)

    def _code(self, name: object) -> str:
        """Return the code of a language; "EN-GB" falls back to the models for English."""
        pairs = self.service.pairs
        try:
            return pairs.code(name)
        except ApiError:
            if isinstance(name, str) and base(name.lower()) in pairs.codes:
                return base(name.lower())
            raise


def _with_errors(endpoint: Endpoint, shape: Callable[[ApiError], object]) -> Endpoint:
    """Wrap an endpoint so that its errors have the shape that the API's clients expect."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            return JSON(shape(error), status_code=error.status, headers=error.headers)

    return answer


def _deepl_error(error: ApiError) -> object:
    return {"message": error.message}


def _google_error(error: ApiError) -> object:
    return {"error": {"code": error.status, "message": error.message, "errors": [{"message": error.message}]}}


def _opennmt_error(error: ApiError) -> object:
    return {"error": error.message, "status": "error"}


def _deepl_key(request: Request, values: Values) -> object:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "deepl-auth-key" else values.get("auth_key")


def _languages(job: TranslationJob, result: Result) -> Sequence[str]:
    """Return the source language of each text, as requested or as detected."""
    if result.detected is None:
        return [job.source] * len(job.texts)
    return [detected.language for detected in result.detected]
