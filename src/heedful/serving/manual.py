"""GET /docs: what GET /spec says, as a page for people. Plain HTML, made once; no script, nothing from elsewhere."""

import json
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

Schema = Mapping[str, Any]

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
    """The page and its style, which the content security policy wants in a file of its own."""

    def __init__(self, spec: Schema, *, source: str, target: str) -> None:
        self._page = page_of(spec, {"q": EXAMPLE, "source": source, "target": target}).encode()

    async def page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html; charset=utf-8")

    async def style(self, request: Request) -> Response:
        return Response(STYLE, media_type="text/css; charset=utf-8")


def page_of(spec: Schema, example: Mapping[str, str]) -> str:
    """The whole page; `example` has what every request must have, of languages that are served."""
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
            parts += _act(path, method.upper(), act, spec, example)
    return "\n".join([*parts, "</body>\n</html>\n"])


def _act(path: str, method: str, act: Schema, spec: Schema, example: Mapping[str, str]) -> Iterator[str]:
    yield f"<h2><code>{method} {escape(path)}</code></h2>\n<p>{escape(act['summary'])}.</p>"
    content = act.get("requestBody", {}).get("content", {})
    body = _resolved(next(iter(content.values()))["schema"], spec) if content else {}
    if content:
        yield f"<p>Takes {escape(', '.join(content))}:</p>"
        yield _table([_field(name, schema, body, spec) for name, schema in body["properties"].items()])
    yield "<p>Answers:</p>"
    yield _table([(status, escape(one["description"])) for status, one in act["responses"].items()])
    yield f"<pre>{escape(_curl(path, body, example))}</pre>"


def _field(name: str, schema: Schema, body: Schema, spec: Schema) -> tuple[str, str]:
    words = _words(schema, spec)
    if name in body.get("required", []):
        words += "; required"
    elif schema.get("default") not in (None, [], ""):
        words += f"; by default {json.dumps(schema['default'])}"
    return name, escape(words)


def _words(schema: Schema, spec: Schema) -> str:
    """What a value may be."""
    schema = _resolved(schema, spec)
    choices = [_words(one, spec) for one in schema.get("oneOf", schema.get("anyOf", []))]
    if choices:
        return " or ".join(one for one in choices if one != "null")
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kinds = schema.get("type", "anything")
    kind = next(one for one in kinds if one != "null") if isinstance(kinds, list) else kinds
    if kind == "array":
        return f"array{_bounds(schema, 'minItems', 'maxItems', '')}, of: {_words(schema['items'], spec)}"
    if kind == "object" and "properties" in schema:
        return "object of " + ", ".join(f"{name} ({_words(one, spec)})" for name, one in schema["properties"].items())
    length = _bounds(schema, "minLength", "maxLength", " characters")
    return f"{kind}{length}{_bounds(schema, 'minimum', 'maximum', '')}"


def _bounds(schema: Schema, least: str, most: str, of: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low:,}{of}"
    return f", at most {high:,}{of}" if low is None else f", {low:,} to {high:,}{of}"


def _curl(path: str, body: Schema, example: Mapping[str, str]) -> str:
    """A request that works, of what must be there."""
    address = f"http://127.0.0.1:8000{path}"  # the default; a page that is made once does not know its own
    if not body:
        return f"curl {address}"
    values = {name: example[name] for name in body["required"]}
    return f"curl -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(values))} {address}"


def _resolved(schema: Schema, spec: Schema) -> Schema:
    name = schema.get("$ref", "").rpartition("/")[2]
    return spec["components"]["schemas"][name] if name else schema


def _table(rows: list[tuple[str, str]]) -> str:
    """Of names, and what is said of them, which is HTML."""
    lines = (f"<tr><th><code>{escape(name)}</code></th><td>{words}</td></tr>" for name, words in rows)
    return "<table>\n" + "\n".join(lines) + "\n</table>"
