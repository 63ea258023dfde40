"""The APIs of other translators, for programs that speak them: DeepL's, Google's (v2) and that of OpenNMT's server.

Behind each is the same service, with the same limits and keys; requests, answers and errors have the shapes of theirs.
What they can do and heedful cannot (glossaries, formality, documents) is refused, never left out in silence.
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
    check_key,
    check_pair,
    parse,
    read_body,
    read_values,
    require_field,
    texts_of,
    wait_for_disconnect,
)
from heedful.serving.service import AUTO, Format, Result, Service, TranslationJob, cancel_on_disconnect

Endpoint = Callable[[Request], Awaitable[Response]]
# Of the options of DeepL those that heedful obeys, or that ask for nothing it does otherwise.
HARMLESS = {
    "text", "target_lang", "source_lang", "tag_handling", "split_sentences", "preserve_formatting",
    "show_billed_characters", "model_type", "auth_key",
}  # fmt: skip


class Segment(Struct):
    """What OpenNMT's clients send an array of; `id` is the number of a model."""

    src: str
    id: int = 0


class OtherApis:
    def __init__(self, service: Service) -> None:
        self.service = service
        self._search = SearchSettings(beam=service.beam)

    def routes(self) -> list[Route]:
        return [
            Route("/v2/translate", _refusing(self.deepl, _deepl_error), methods=["POST"]),
            Route("/v2/languages", _refusing(self.deepl_languages, _deepl_error), methods=["GET", "POST"]),
            Route("/v2/usage", _refusing(self.deepl_usage, _deepl_error), methods=["GET", "POST"]),
            Route("/language/translate/v2", _refusing(self.google, _google_error), methods=["GET", "POST"]),
            Route("/translator/translate", _refusing(self.opennmt, _opennmt_error), methods=["POST"]),
            Route("/translator/models", _refusing(self.opennmt_models, _opennmt_error)),
        ]

    # DeepL, version 2

    async def deepl(self, request: Request) -> Response:
        values, _ = await read_values(request, self.service.limits, repeated=("text",))
        client = self._client(request, _deepl_key(request, values))
        for name, value in values.items():
            is_default = value in (None, "", False, "0", "default") or str(value).startswith("prefer_")
            if name not in HARMLESS and not is_default:
                raise ApiError(400, f"{quoted(name)} is not supported by this server: leave it out")
        markup = values.get("tag_handling") or "text"
        if markup not in ("text", "html"):
            raise ApiError(400, f"tag_handling: {quoted(markup)} is not supported, html is")
        source, target = values.get("source_lang") or AUTO, values.get("target_lang")
        wish = self._wish("text", values, source, target, "html" if markup == "html" else "text")
        result = await self._translate(request, wish, client)
        said: list[dict[str, object]] = [
            {"detected_source_language": code.upper(), "text": found[0].text}
            for code, found in zip(_languages(wish, result), result.translations, strict=True)
        ]
        if values.get("show_billed_characters"):
            said = [{**one, "billed_characters": len(text)} for one, text in zip(said, wish.texts, strict=True)]
        return JSON({"translations": said})

    async def deepl_languages(self, request: Request) -> Response:
        values, _ = await read_values(request, self.service.limits)
        self._client(request, _deepl_key(request, values))
        pairs = list(self.service.pairs)
        is_target = values.get("type") == "target"
        codes = dict.fromkeys(pair.target if is_target else pair.source for pair in pairs)
        more = {"supports_formality": False} if is_target else {}
        return JSON([{"language": code.upper(), "name": name_of(code), **more} for code in codes])

    async def deepl_usage(self, request: Request) -> Response:
        """Nothing is billed: there is no limit to come near to."""
        values, _ = await read_values(request, self.service.limits)
        self._client(request, _deepl_key(request, values))
        return JSON({"character_count": 0, "character_limit": 1_000_000_000_000})

    # Google, version 2

    async def google(self, request: Request) -> Response:
        values, _ = await read_values(request, self.service.limits, repeated=("q",))
        key = request.query_params.get("key") or request.headers.get("x-goog-api-key") or values.get("key")
        client = self._client(request, key)
        kind = values.get("format") or "html"  # as Google has it
        if kind not in ("text", "html"):
            raise ApiError(400, f"format: {quoted(kind)} is not supported")
        source, target = values.get("source") or AUTO, values.get("target")
        wish = self._wish("q", values, source, target, "html" if kind == "html" else "text")
        result = await self._translate(request, wish, client)
        said: list[dict[str, object]] = [{"translatedText": found[0].text} for found in result.translations]
        if wish.source == AUTO:
            codes = _languages(wish, result)
            said = [{**one, "detectedSourceLanguage": code} for one, code in zip(said, codes, strict=True)]
        return JSON({"data": {"translations": said}})

    # OpenNMT's server

    async def opennmt(self, request: Request) -> Response:
        body = await read_body(request, self.service.limits)
        client = self._client(request, None)
        segments = parse(body, list[Segment])
        pairs = list(self.service.pairs)
        numbers = {one.id for one in segments}
        if len(numbers) != 1 or not 0 <= min(numbers) < len(pairs):
            raise ApiError(400, f"id: one model for all segments, by its number from 0 to {len(pairs) - 1}")
        pair = pairs[numbers.pop()]
        wish = self._wish("src", {"src": [one.src for one in segments]}, pair.source, pair.target, "text")
        result = await self._translate(request, wish, client)
        best = [found[0] for found in result.translations]
        said = [
            {"src": text, "tgt": one.text, "n_best": 1, "pred_score": one.score}
            for text, one in zip(wish.texts, best, strict=True)
        ]
        return JSON([said])

    async def opennmt_models(self, request: Request) -> Response:
        self._client(request, None)
        return JSON(
            [
                {"model_id": number, "status": "ready", "source": pair.source, "target": pair.target}
                for number, pair in enumerate(self.service.pairs)
            ]
        )

    # What they share

    def _client(self, request: Request, key: object) -> str:
        """Who asks. These APIs answer 403 where a key is wanting, too."""
        try:
            return check_key(request, {"api_key": key}, self.service)
        except ApiError as refusal:
            raise ApiError(403, refusal.words) from None

    def _wish(self, name: str, values: Values, source: object, target: object, kind: Format) -> TranslationJob:
        texts = texts_of(require_field(values, name), self.service.limits)
        wish = TranslationJob(
            texts, AUTO if source == AUTO else self._code(source), self._code(target), self._search, kind
        )
        check_pair(wish, self.service)
        return wish

    def _code(self, given: object) -> str:
        """The code of a language; "EN-GB" is served by a model for English."""
        pairs = self.service.pairs
        try:
            return pairs.code(given)
        except ApiError:
            if isinstance(given, str) and base(given.lower()) in pairs.codes:
                return base(given.lower())
            raise

    async def _translate(self, request: Request, wish: TranslationJob, client: str) -> Result:
        self.service.rate.spend(client, len(wish.texts))
        return await cancel_on_disconnect(self.service.translate(wish), lambda: wait_for_disconnect(request))


def _refusing(endpoint: Endpoint, shape: Callable[[ApiError], object]) -> Endpoint:
    """The same endpoint, whose errors have the shape that its clients read."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as refusal:
            return JSON(shape(refusal), status_code=refusal.status, headers=refusal.headers)

    return answer


def _deepl_error(refusal: ApiError) -> object:
    return {"message": refusal.words}


def _google_error(refusal: ApiError) -> object:
    return {"error": {"code": refusal.status, "message": refusal.words, "errors": [{"message": refusal.words}]}}


def _opennmt_error(refusal: ApiError) -> object:
    return {"error": refusal.words, "status": "error"}


def _deepl_key(request: Request, values: Values) -> object:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "deepl-auth-key" else values.get("auth_key")


def _languages(wish: TranslationJob, result: Result) -> Sequence[str]:
    """The language of each text, told or found."""
    if result.detected is None:
        return [wish.source] * len(wish.texts)
    return [one.language for one in result.detected]
