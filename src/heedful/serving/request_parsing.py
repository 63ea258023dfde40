"""Read requests: JSON or form fields, checked against the limits, and the translation job that they ask for."""

import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from heedful.serving.errors import ApiError, quoted
from heedful.serving.limits import Limits
from heedful.serving.service import (
    AUTO,
    ClientDisconnected,
    Format,
    Result,
    Service,
    TranslationJob,
    cancel_on_disconnect,
)

MOST_FIELDS = 100
MOST_HEAD = 4_096  # bytes of a multipart field's headers
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:[ \t]*form-data;([^\r\n]*)", re.IGNORECASE)
_NAME = re.compile(rb'(?:^|;)[ \t]*name="([^"]*)"', re.IGNORECASE)
_FILE = re.compile(rb"(?:^|;)[ \t]*filename\*?=", re.IGNORECASE)


def multipart_fields(body: bytes, content_type: str) -> list[tuple[str, str]]:
    """Parse the text fields of a multipart form. Raise a ValueError for another body, a file or too many fields."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise ValueError("no boundary")
    line = b"\r\n--" + (boundary[1] or boundary[2]).encode("ascii")
    _, *parts = (b"\r\n" + body).split(line, MOST_FIELDS + 2)
    if not parts or len(parts) > MOST_FIELDS + 1 or not parts[-1].startswith(b"--"):
        raise ValueError("incomplete, or too many fields")
    return [_field(part) for part in parts[:-1]]


def _field(part: bytes) -> tuple[str, str]:
    head, blank, value = part.lstrip(b" \t").partition(b"\r\n\r\n")
    disposition = _DISPOSITION.search(head) if len(head) <= MOST_HEAD and head.startswith(b"\r\n") else None
    name = None if disposition is None else _NAME.search(disposition[1])
    if not blank or disposition is None or name is None or _FILE.search(disposition[1]):
        raise ValueError("not a text field")
    return name[1].decode(), value.decode()


Values = Mapping[str, Any]
T = TypeVar("T")


class JSON(Response):
    """A JSON response, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return msgspec.json.encode(content)


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read the body of a request; raise a 413 if it is too large."""
    too_large = ApiError(413, f"Invalid request: the body exceeds {limits.body_bytes} bytes")
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced[:20]) > limits.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body_bytes:
                raise too_large
    except ClientDisconnect:
        raise ClientDisconnected from None
    return bytes(body)


async def read_values(request: Request, limits: Limits, *, repeated: Collection[str] = ()) -> tuple[Values, bool]:
    """Read the fields of a JSON body, or of a form and the query; also return whether the body was JSON.

    If a form has a field several times, the last value counts, except for the fields in `repeated`, which become lists.
    """
    body = await read_body(request, limits)
    kind = request.headers.get("content-type", "")
    essence = kind.partition(";")[0].strip().lower()
    if essence == "application/json" or (essence.startswith("application/") and essence.endswith("+json")):
        return json_object(body), True
    try:
        fields = form_fields(request.scope["query_string"])
        if essence == "application/x-www-form-urlencoded":
            fields += form_fields(body)
        elif essence == "multipart/form-data":
            fields += multipart_fields(body, kind)
    except ValueError:  # invalid UTF-8, too many fields, or not of the declared type
        raise ApiError(400, "Invalid request: the form cannot be read") from None
    values: dict[str, Any] = dict(fields)
    for name in repeated:
        if name in values:
            values[name] = [value for other, value in fields if other == name]
    return values, False


def form_fields(text: bytes) -> list[tuple[str, str]]:
    """Parse a URL-encoded form or query. Accept UTF-8 without percent-encoding too, as curl sends it."""
    return parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


def json_object(body: bytes) -> Values:
    """Parse a body that must be a JSON object. msgspec bounds the depth of nesting."""
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ApiError(400, "Invalid JSON format") from None
    if not isinstance(values, dict):
        raise ApiError(400, "Invalid JSON format")
    return values


def parse(body: bytes, kind: type[T]) -> T:
    """Parse a body into a type; the 400 error names the first field that does not fit."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"Invalid request: {error}"[:300]) from None
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ApiError(400, "Invalid JSON format") from None


def authenticate(request: Request, values: Values, service: Service) -> str:
    """Return the identity of the client for the rate limit: its key or, on a server without keys, its address.

    As LibreTranslate does, answer 400 if the key is missing and 403 if it is wrong.
    """
    if not len(service.keys):
        return f"address {request.client.host}" if request.client else "address"
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    key = bearer.strip() if scheme.lower() == "bearer" else values.get("api_key") or values.get("apiKey")
    if not key:
        raise ApiError(400, "Please contact the server operator to get an API key")
    client = service.keys.find(key) if isinstance(key, str) else None
    if client is None:
        raise ApiError(403, "Invalid API key")
    return client


def require_field(values: Values, name: str) -> Any:
    """Return the value of a field; raise a 400 that names the field if it is missing or empty."""
    value = values.get(name)
    if value is None or value == "" or value == []:
        raise ApiError(400, f"Invalid request: missing {name} parameter")
    return value


def texts_of(q: object, limits: Limits) -> list[str]:
    """Return one text or a list of texts as a list, within the limits of number and length."""
    values = q if isinstance(q, list) else [q]
    if len(values) > limits.texts:
        raise ApiError(400, f"Invalid request: request ({len(values)}) exceeds text limit ({limits.texts})")
    texts: list[str] = []
    for text in values:
        if not isinstance(text, str):
            raise ApiError(400, "Invalid request: q must be a text or an array of texts")
        if len(text) > limits.characters:
            raise ApiError(400, f"Invalid request: request ({len(text)}) exceeds text limit ({limits.characters})")
        texts.append(text)
    return texts


def format_of(values: Values) -> Format:
    """Return the format of the texts, "text" or "html"."""
    name = values.get("format") or "text"
    if name == "text" or name == "html":
        return "text" if name == "text" else "html"
    raise ApiError(400, f"{quoted(name)} format is not supported")


def languages_of(values: Values, service: Service, code: Callable[[object], str] | None = None) -> tuple[str, str]:
    """Return the codes of source (or "auto") and target. `code` maps other spellings to the codes of the models."""
    code = code or service.pairs.code
    source, target = require_field(values, "source"), require_field(values, "target")
    return source if source == AUTO else code(source), code(target)


def admit(job: TranslationJob, client: str, service: Service) -> TranslationJob:
    """Check the language pair and the client's rate before anything is detected or queued. Every API calls it last."""
    if job.source != AUTO:
        service.pairs.find(job.source, job.target)
    service.rate.spend(client, len(job.texts))
    return job


async def answer_job(request: Request, job: TranslationJob, service: Service) -> Result:
    """Translate; cancel the work if the client closes the connection."""
    return await until_disconnect(request, service.translate(job))


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, and cancel it if the client closes the connection. Call it after the body has been read."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return await cancel_on_disconnect(work, disconnected)
