"""LibreTranslate's contract at `/`, so that its clients work with heedful unchanged."""

from starlette.requests import Request
from starlette.responses import Response

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import Translation
from heedful.serving.errors import ApiError
from heedful.serving.languages import Detected, name_of
from heedful.serving.request_parsing import (
    JSON,
    Values,
    check_key,
    check_pair,
    format_of,
    languages_of,
    read_values,
    require_field,
    texts_of,
    wait_for_disconnect,
)
from heedful.serving.service import Result, Service, TranslationJob, cancel_on_disconnect

FRONTEND_TIMEOUT = 500  # milliseconds that a page waits after a key before it asks


class LibreTranslate:
    """Its endpoints; each is one method."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # By number of alternatives; made once, since their checks take time, and the very same are merged at once.
        self._searches = [
            SearchSettings(beam=max(service.beam, n + 1), n_best=n + 1) for n in range(service.limits.alternatives + 1)
        ]

    async def translate(self, request: Request) -> Response:
        service = self.service
        values, is_json = await read_values(request, service.limits)
        client = check_key(request, values, service)
        q = require_field(values, "q")
        languages = languages_of(values, service)
        n_alternatives = self._alternatives(values)
        texts = texts_of(q if is_json else q.replace("\r\n", "\n").replace("\r", "\n"), service.limits)
        wish = TranslationJob(texts, *languages, self._searches[n_alternatives], format_of(values))
        check_pair(wish, service)
        service.rate.spend(client, len(texts))
        result = await cancel_on_disconnect(service.translate(wish), lambda: wait_for_disconnect(request))
        return JSON(_answer(result, is_batch=isinstance(q, list), n_alternatives=n_alternatives))

    async def detect(self, request: Request) -> Response:
        service = self.service
        values, _ = await read_values(request, service.limits)
        client = check_key(request, values, service)
        q = require_field(values, "q")
        text = texts_of([q], service.limits)[0]
        service.rate.spend(client, 1)
        return JSON([_detected(one) for one in await service.detect(text)])

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
                # heedful's own, for its page: texts of a request, and other translations of each.
                "textsLimit": service.limits.texts,
                "alternativesLimit": service.limits.alternatives,
            }
        )

    async def translate_file(self, request: Request) -> Response:
        raise ApiError(403, "Files translation are disabled on this server.")

    async def suggest(self, request: Request) -> Response:
        raise ApiError(403, "Suggestions are disabled on this server.")

    def _alternatives(self, values: Values) -> int:
        given, most = values.get("alternatives") or 0, self.service.limits.alternatives
        try:
            n = max(0, int(given))
        except (TypeError, ValueError, OverflowError):
            raise ApiError(400, "Invalid request: alternatives parameter is not a number") from None
        if n > most:
            raise ApiError(400, f"Invalid request: alternatives parameter must be <= {most}")
        return n


def _answer(result: Result, *, is_batch: bool, n_alternatives: int) -> dict[str, object]:
    texts = [translations[0].text for translations in result.translations]
    answer: dict[str, object] = {"translatedText": texts if is_batch else texts[0]}
    if result.detected is not None:
        detected = [_detected(one) for one in result.detected]
        answer["detectedLanguage"] = detected if is_batch else detected[0]
    if n_alternatives > 0:
        others = [_others(translations) for translations in result.translations]
        answer["alternatives"] = others if is_batch else others[0]
    return answer


def _others(translations: list[Translation]) -> list[str]:
    """What the search found beside the best, each once."""
    return list(dict.fromkeys(one.text for one in translations if one.text != translations[0].text))


def _detected(one: Detected) -> dict[str, object]:
    return {"confidence": one.confidence, "language": one.language}
