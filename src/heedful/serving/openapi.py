"""The API description: OpenAPI 3.1 at GET /spec, and the same as a plain HTML page without scripts at GET /docs."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from heedful import __version__
from heedful.serving.limits import Limits
from heedful.serving.routes.look import LookBody
from heedful.serving.routes.native import TranslateBody, TranslateResponse

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
# status -> meaning; every error has the body {"error": "…"}
ERRORS = {
    400: "The request is invalid, exceeds a limit, or lacks a key",
    403: "The key is wrong, or the feature is off",
    413: "The body is too large",
    429: "Too many requests, or the queue is full; retry after the seconds in Retry-After",
    431: "The headers are too large",
    500: "The server failed",
    503: "The server is stopping, or the translation took too long",
}


def make_spec(limits: Limits, codes: Sequence[str]) -> Schema:
    """Build the OpenAPI document with the limits and languages of this server."""
    own, types = msgspec.json.schema_components(
        [TranslateBody, TranslateResponse, LookBody], ref_template="#/components/schemas/{name}"
    )
    asked, answers, look = own
    types["TranslateBody"]["properties"] |= _languages(codes) | _search(limits) | {"q": _texts(limits)}
    types["LookBody"]["properties"] |= _languages(codes) | {"q": _text(limits)}
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
            "/detect": _post(
                "Detect the language of a text", _detect(limits), _ok({"type": "array", "items": DETECTED})
            ),
            "/languages": _get("The languages of this server", {"type": "array", "items": LANGUAGE}),
            "/health": _get("Whether the server runs", STATUS),
            "/ready": _get("Whether the server can translate now", STATUS, {"503": _json(STATUS, "Not ready")}),
            "/frontend/settings": _get("Settings for a page", SETTINGS),
            "/api/v1/translate": _post("Translate, with scores and n-best lists", asked, _ok(answers), form=False),
            "/api/v1/translate/stream": _post("Translate and stream partial texts", asked, stream, form=False),
            "/api/v1/look": _post("The trace of one translation", look, _ok({"type": "object"}), form=False),
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
    """Return the schemas of the search options with their limits."""
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
    """Return the schemas of source and target. The server also accepts other spellings of the codes."""
    return {"source": {"type": "string", "enum": ["auto", *codes]}, "target": {"type": "string", "enum": list(codes)}}


PageSchema = Mapping[str, Any]

EXAMPLE = "A dog runs."
STYLE = """:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; border-top: 1px solid GrayText; padding-top: 1rem }
code, pre { font: 14px/1.5 ui-monospace, monospace }
h2 code { font-size: 1.2rem }
pre { white-space: pre-wrap; padding: 0.75rem; border: 1px solid GrayText; border-radius: 4px }
table { border-collapse: collapse }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1.5rem 0.2rem 0 }
"""


class Manual:
    """Serves the page and its style sheet, which the content security policy requires in a separate file."""

    def __init__(self, spec: PageSchema, *, source: str, target: str) -> None:
        self._page = manual_html(spec, {"q": EXAMPLE, "source": source, "target": target}).encode()

    async def page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html; charset=utf-8")

    async def style(self, request: Request) -> Response:
        return Response(STYLE, media_type="text/css; charset=utf-8")


def manual_html(spec: PageSchema, example: Mapping[str, str]) -> str:
    """Render the page. `example` has the required fields of every request, with languages of this server."""
    about = spec["info"]
    title = escape(f"{about['title']} {about['version']}")
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{title}: API</title>\n<link rel="stylesheet" href="docs.css">\n</head>\n<body>',
        f"<h1>{title}: API</h1>\n<p>{escape(about['description'])}</p>",
        '<p>For programs: <a href="spec">/spec</a> (OpenAPI).</p>',
    ]
    for path, methods in spec["paths"].items():
        for method, act in methods.items():
            parts += _operation(path, method.upper(), act, spec, example)
    return "\n".join([*parts, "</body>\n</html>\n"])


def _operation(path: str, method: str, act: PageSchema, spec: PageSchema, example: Mapping[str, str]) -> Iterator[str]:
    yield f"<h2><code>{method} {escape(path)}</code></h2>\n<p>{escape(act['summary'])}.</p>"
    content = act.get("requestBody", {}).get("content", {})
    body = _resolved(next(iter(content.values()))["schema"], spec) if content else {}
    if content:
        yield f"<p>Takes {escape(', '.join(content))}:</p>"
        yield _table([_field(name, schema, body, spec) for name, schema in body["properties"].items()])
    yield "<p>Responses:</p>"
    yield _table([(status, escape(response["description"])) for status, response in act["responses"].items()])
    yield f"<pre>{escape(_curl(path, body, example))}</pre>"


def _field(name: str, schema: PageSchema, body: PageSchema, spec: PageSchema) -> tuple[str, str]:
    words = _describe(schema, spec)
    if name in body.get("required", []):
        words += "; required"
    elif schema.get("default") not in (None, [], ""):
        words += f"; by default {json.dumps(schema['default'])}"
    return name, escape(words)


def _describe(schema: PageSchema, spec: PageSchema) -> str:
    """Describe the values that a schema allows."""
    schema = _resolved(schema, spec)
    choices = [_describe(choice, spec) for choice in schema.get("oneOf", schema.get("anyOf", []))]
    if choices:
        return " or ".join(choice for choice in choices if choice != "null")
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kinds = schema.get("type", "anything")
    kind = next(kind for kind in kinds if kind != "null") if isinstance(kinds, list) else kinds
    if kind == "array":
        return f"array{_bounds(schema, 'minItems', 'maxItems', '')}, of: {_describe(schema['items'], spec)}"
    if kind == "object" and "properties" in schema:
        return "object of " + ", ".join(
            f"{name} ({_describe(value, spec)})" for name, value in schema["properties"].items()
        )
    length = _bounds(schema, "minLength", "maxLength", " characters")
    return f"{kind}{length}{_bounds(schema, 'minimum', 'maximum', '')}"


def _bounds(schema: PageSchema, least: str, most: str, of: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low:,}{of}"
    return f", at most {high:,}{of}" if low is None else f", {low:,} to {high:,}{of}"


def _curl(path: str, body: PageSchema, example: Mapping[str, str]) -> str:
    """Return a working curl command with the required fields."""
    address = f"http://127.0.0.1:8000{path}"  # the default address of `heedful serve`
    if not body:
        return f"curl {address}"
    values = {name: example[name] for name in body["required"]}
    return f"curl -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(values))} {address}"


def _resolved(schema: PageSchema, spec: PageSchema) -> PageSchema:
    name = schema.get("$ref", "").rpartition("/")[2]
    return spec["components"]["schemas"][name] if name else schema


def _table(rows: list[tuple[str, str]]) -> str:
    """Render rows of a name and an HTML description."""
    lines = (f"<tr><th><code>{escape(name)}</code></th><td>{html}</td></tr>" for name, html in rows)
    return "<table>\n" + "\n".join(lines) + "\n</table>"
