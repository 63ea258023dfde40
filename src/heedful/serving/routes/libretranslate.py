"""LibreTranslate's HTTP API, so that its clients work with heedful unchanged."""

from starlette.requests import Request
from starlette.responses import Response

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import Translation
from heedful.serving.errors import ApiError
from heedful.serving.languages import Detected, name_of
from heedful.serving.request_parsing import (
    JSON,
    Values,
    admit,
    answer_job,
    authenticate,
    format_of,
    languages_of,
    read_values,
    require_field,
    texts_of,
)
from heedful.serving.service import Result, Service, TranslationJob

FRONTEND_TIMEOUT = 500  # milliseconds between the last key press on a page and its request


class LibreTranslate:
    """The endpoints of LibreTranslate, one method each."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # One for each number of alternatives. Requests with the same object share a batch, and its checks run once.
        self._searches = [
            SearchSettings(beam=max(service.beam, n + 1), n_best=n + 1) for n in range(service.limits.alternatives + 1)
        ]

    async def translate(self, request: Request) -> Response:
        service = self.service
        values, is_json = await read_values(request, service.limits)
        client = authenticate(request, values, service)
        q = require_field(values, "q")
        languages = languages_of(values, service)
        n_alternatives = self._alternatives(values)
        texts = texts_of(q if is_json else q.replace("\r\n", "\n").replace("\r", "\n"), service.limits)
        job = TranslationJob(texts, *languages, self._searches[n_alternatives], format_of(values))
        result = await answer_job(request, admit(job, client, service), service)
        return JSON(_answer(result, is_batch=isinstance(q, list), n_alternatives=n_alternatives))

    async def detect(self, request: Request) -> Response:
        service = self.service
        values, _ = await read_values(request, service.limits)
        client = authenticate(request, values, service)
        q = require_field(values, "q")
        text = texts_of([q], service.limits)[0]
        service.rate.spend(client, 1)
        return JSON([_detected(detected) for detected in await service.detect(text)])

    async def languages(self, request: Request) -> Response:
        return JSON(self.service.pairs.languages())

    async def health(self, request: Request) -> Response:
        return JSON({"status": "ok"})

    async def settings(self, request: Request) -> Response:
        service = self.service
        first = next(iter(service.pairs))
        return JSON(
            {
                "charLimit": service.limits.characters,
                "frontendTimeout": FRONTEND_TIMEOUT,
                "apiKeys": len(service.keys) > 0,
                "keyRequired": len(service.keys) > 0,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    "source": {"code": first.source, "name": name_of(first.source)},
                    "target": {"code": first.target, "name": name_of(first.target)},
                },
                # Not part of LibreTranslate's API, for heedful's page: texts per request, alternatives per text.
                "textsLimit": service.limits.texts,
                "alternativesLimit": service.limits.alternatives,
            }
        )

    async def translate_file(self, request: Request) -> Response:
        raise ApiError(403, "Files translation are disabled on this server.")

    async def suggest(self, request: Request) -> Response:
        raise ApiError(403, "Suggestions are disabled on this server.")

    def _alternatives(self, values: Values) -> int:
        value, most = values.get("alternatives") or 0, self.service.limits.alternatives
        try:
            n = max(0, int(value))
        except (TypeError, ValueError, OverflowError):
            raise ApiError(400, "Invalid request: alternatives parameter is not a number") from None
        if n > most:
            raise ApiError(400, f"Invalid request: alternatives parameter must be <= {most}")
        return n


def _answer(result: Result, *, is_batch: bool, n_alternatives: int) -> dict[str, object]:
    texts = [translations[0].text for translations in result.translations]
    answer: dict[str, object] = {"translatedText": texts if is_batch else texts[0]}
    if result.detected is not None:
        detected = [_detected(language) for language in result.detected]
        answer["detectedLanguage"] = detected if is_batch else detected[0]
    if n_alternatives > 0:
        alternatives = [_alternatives(translations) for translations in result.translations]
        answer["alternatives"] = alternatives if is_batch else alternatives[0]
    return answer


def _alternatives(translations: list[Translation]) -> list[str]:
    """Return the texts of all hypotheses that differ from the best, each once."""
    texts = [translation.text for translation in translations]
    return list(dict.fromkeys(text for text in texts if text != texts[0]))


def _detected(detected: Detected) -> dict[str, object]:
    return {"confidence": detected.confidence, "language": detected.language}
