"""GET /spec: the requests and answers of the server as OpenAPI 3.1."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heedful import __version__
from heedful.serving.api import Answers, Asked
from heedful.serving.limits import Limits
from heedful.serving.looking import LookAsked

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}

DETECTED: Schema = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": TEXT},
}
EVENT: Schema = {"type": "object", "required": ["event", "data"], "properties": {"event": TEXT, "data": TEXT}}
ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}
STATUS: Schema = {"type": "object", "required": ["status"], "properties": {"status": TEXT}}
LANGUAGE: Schema = {
    "type": "object",
    "required": ["code", "name", "targets"],
    "properties": {"code": TEXT, "name": TEXT, "targets": {"type": "array", "items": TEXT}},
}
NAMED: Schema = {"type": "object", "required": ["code", "name"], "properties": {"code": TEXT, "name": TEXT}}
SETTINGS: Schema = {
    "type": "object",
    "required": ["charLimit", "frontendTimeout", "apiKeys", "keyRequired", "suggestions", "filesTranslation"],
    "properties": {
        **{name: {"type": "integer"} for name in ("charLimit", "frontendTimeout", "textsLimit", "alternativesLimit")},
        **{name: {"type": "boolean"} for name in ("apiKeys", "keyRequired", "suggestions", "filesTranslation")},
        "supportedFilesFormat": {"type": "array", "items": TEXT},
        "language": {"type": "object", "properties": {"source": NAMED, "target": NAMED}},
    },
}
# status -> what it means here; all carry {"error": "…"}
ERRORS = {
    400: "The request is not understood, exceeds a limit, or lacks a key",
    403: "The key is wrong, or the feature is off",
    413: "The body is too large",
    429: "Too many requests, or the queue is full; Retry-After says when to come again",
    431: "The headers are too large",
    500: "The server failed",
    503: "The server is stopping, or the translation took too long",
}


def make_spec(limits: Limits, codes: Sequence[str]) -> Schema:
    """The document; it says the limits that are in force, and the languages that are served."""
    own, types = msgspec.json.schema_components([Asked, Answers, LookAsked], ref_template="#/components/schemas/{name}")
    asked, answers, look = own
    types["Asked"]["properties"] |= _languages(codes) | _search(limits) | {"q": _texts(limits)}
    types["LookAsked"]["properties"] |= _languages(codes) | {"q": _text(limits)}
    stream = {"description": "Server-sent events", "content": {"text/event-stream": {"schema": EVENT}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "heedful",
            "version": __version__,
            "description": "Translation. At / compatible with LibreTranslate; below /api/v1 with scores and n-best.",
        },
        "paths": {
            "/translate": _post("Translate one text or several", _translate(limits, codes), _ok(_translated())),
            "/detect": _post("Which language a text is in", _detect(limits), _ok({"type": "array", "items": DETECTED})),
            "/languages": _get("The languages of this server", {"type": "array", "items": LANGUAGE}),
            "/health": _get("Whether the server runs", STATUS),
            "/ready": _get("Whether it can translate now", STATUS, {"503": _json(STATUS, "Not now")}),
            "/frontend/settings": _get("What a page must know", SETTINGS),
            "/api/v1/translate": _post("Translate, with scores and n-best", asked, _ok(answers), form=False),
            "/api/v1/translate/stream": _post("Translate, told as it is written", asked, stream, form=False),
            "/api/v1/look": _post("Everything inside, for one sentence", look, _ok({"type": "object"}), form=False),
        },
        "components": {
            "schemas": types,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _translate(limits: Limits, codes: Sequence[str]) -> Schema:
    return {
        "type": "object",
        "required": ["q", "source", "target"],
        "properties": {
            "q": _texts(limits),
            **_languages(codes),
            "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
            "alternatives": {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0},
            "api_key": TEXT,
        },
    }


def _text(limits: Limits) -> Schema:
    return TEXT | {"minLength": 1, "maxLength": limits.characters}


def _texts(limits: Limits) -> Schema:
    item = TEXT | {"maxLength": limits.characters}
    return {"oneOf": [_text(limits), {"type": "array", "items": item, "minItems": 1, "maxItems": limits.texts}]}


def _search(limits: Limits) -> Schema:
    """What may be asked for at most."""
    return {
        "beam": {"type": ["integer", "null"], "minimum": 1, "maximum": limits.beam, "default": None},
        "n_best": {"type": "integer", "minimum": 1, "maximum": limits.beam, "default": 1},
        "max_len": {"type": ["integer", "null"], "minimum": 1, "maximum": limits.max_len, "default": None},
    }


def _translated() -> Schema:
    one_or_more = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}
    texts = {"type": "array", "items": TEXT}
    return {
        "type": "object",
        "required": ["translatedText"],
        "properties": {
            "translatedText": one_or_more,
            "detectedLanguage": {"oneOf": [DETECTED, {"type": "array", "items": DETECTED}]},
            "alternatives": {"type": "array", "items": {"oneOf": [TEXT, texts]}},
        },
        "additionalProperties": False,
    }


def _detect(limits: Limits) -> Schema:
    return {"type": "object", "required": ["q"], "properties": {"q": _text(limits), "api_key": TEXT}}


def _get(words: str, schema: Schema, more: Schema | None = None) -> Schema:
    return {
        "get": {
            "summary": words,
            "responses": {"200": _ok(schema), "429": _error(429), "431": _error(431), **(more or {})},
        }
    }


def _post(words: str, body: Schema, ok: Schema, *, form: bool = True) -> Schema:
    content = {"application/json": {"schema": body}}
    if form:
        content |= {kind: {"schema": body} for kind in ("application/x-www-form-urlencoded", "multipart/form-data")}
    responses = {"200": ok, **{str(status): _error(status) for status in ERRORS}}
    return {"post": {"summary": words, "requestBody": {"required": True, "content": content}, "responses": responses}}


def _ok(schema: Schema) -> Schema:
    return _json(schema, "Done")


def _error(status: int) -> Schema:
    return _json(ERROR, ERRORS[status])


def _json(schema: Schema, words: str) -> Schema:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _languages(codes: Sequence[str]) -> Schema:
    """Other spellings of the codes are understood, too."""
    return {"source": {"type": "string", "enum": ["auto", *codes]}, "target": {"type": "string", "enum": list(codes)}}
