"""Forms as browsers send them when a script says FormData, and curl with -F: fields of text, and no files.

Requests as values: JSON, or a form and the query, as LibreTranslate takes them; checked against the limits.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from heedful.serving.errors import ApiError, quoted
from heedful.serving.limits import Limits
from heedful.serving.service import AUTO, ClientDisconnected, Format, Service, TranslationJob

MOST_FIELDS = 100
MOST_HEAD = 4_096  # bytes before a field
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:[ \t]*form-data;([^\r\n]*)", re.IGNORECASE)
_NAME = re.compile(rb'(?:^|;)[ \t]*name="([^"]*)"', re.IGNORECASE)
_FILE = re.compile(rb"(?:^|;)[ \t]*filename\*?=", re.IGNORECASE)


def multipart_fields(body: bytes, content_type: str) -> list[tuple[str, str]]:
    """Names and values, in their order; a ValueError for what is not such a form, has a file in it, or too much."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise ValueError("no boundary")
    line = b"\r\n--" + (boundary[1] or boundary[2]).encode("ascii")
    _, *parts = (b"\r\n" + body).split(line, MOST_FIELDS + 2)
    if not parts or len(parts) > MOST_FIELDS + 1 or not parts[-1].startswith(b"--"):
        raise ValueError("not whole, or too many fields")
    return [_field(part) for part in parts[:-1]]


def _field(part: bytes) -> tuple[str, str]:
    head, blank, value = part.lstrip(b" \t").partition(b"\r\n\r\n")
    said = _DISPOSITION.search(head) if len(head) <= MOST_HEAD and head.startswith(b"\r\n") else None
    name = None if said is None else _NAME.search(said[1])
    if not blank or said is None or name is None or _FILE.search(said[1]):
        raise ValueError("not a field of text")
    return name[1].decode(), value.decode()


Values = Mapping[str, Any]
T = TypeVar("T")


class JSON(Response):
    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return msgspec.json.encode(content)


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, as long as it is within its limit."""
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
    """The fields of a request, and whether they came as JSON. Of a form's name the last counts; of `repeated` all."""
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
    except ValueError:  # not UTF-8, too many, or not what it says it is
        raise ApiError(400, "Invalid request: the form cannot be read") from None
    values: dict[str, Any] = dict(fields)
    for name in repeated:
        if name in values:
            values[name] = [value for other, value in fields if other == name]
    return values, False


def form_fields(text: bytes) -> list[tuple[str, str]]:
    """Names and values; UTF-8 may stand there as it is, as curl sends it, or in % and hexadecimal digits."""
    return parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


def json_object(body: bytes) -> Values:
    """Depth is bounded by msgspec itself, which ends with an error and not with the stack."""
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ApiError(400, "Invalid JSON format") from None
    if not isinstance(values, dict):
        raise ApiError(400, "Invalid JSON format")
    return values


def parse(body: bytes, kind: type[T]) -> T:
    """A body that must be just so: msgspec says which field is not."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"Invalid request: {error}"[:300]) from None
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ApiError(400, "Invalid JSON format") from None


def check_key(request: Request, values: Values, service: Service) -> str:
    """Who asks, for the rate. Refused as LibreTranslate does: 400 without a key, 403 with a wrong one."""
    if not len(service.keys):
        return f"address {request.client.host}" if request.client else "address"
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else values.get("api_key") or values.get("apiKey")
    if not given:
        raise ApiError(400, "Please contact the server operator to get an API key")
    who = service.keys.find(given) if isinstance(given, str) else None
    if who is None:
        raise ApiError(403, "Invalid API key")
    return who


def require_field(values: Values, name: str) -> Any:
    """The field, or the Refusal that names it."""
    value = values.get(name)
    if value is None or value == "" or value == []:
        raise ApiError(400, f"Invalid request: missing {name} parameter")
    return value


def texts_of(q: object, limits: Limits) -> list[str]:
    """One text or several, none of them too long."""
    given = q if isinstance(q, list) else [q]
    if len(given) > limits.texts:
        raise ApiError(400, f"Invalid request: request ({len(given)}) exceeds text limit ({limits.texts})")
    texts: list[str] = []
    for text in given:
        if not isinstance(text, str):
            raise ApiError(400, "Invalid request: q must be a text or an array of texts")
        if len(text) > limits.characters:
            raise ApiError(400, f"Invalid request: request ({len(text)}) exceeds text limit ({limits.characters})")
        texts.append(text)
    return texts


def format_of(values: Values) -> Format:
    given = values.get("format") or "text"
    if given == "text" or given == "html":
        return "text" if given == "text" else "html"
    raise ApiError(400, f"{quoted(given)} format is not supported")


def languages_of(values: Values, service: Service) -> tuple[str, str]:
    """Source, which may be "auto", and target."""
    source, target = require_field(values, "source"), require_field(values, "target")
    return source if source == AUTO else service.pairs.code(source), service.pairs.code(target)


def check_pair(wish: TranslationJob, service: Service) -> None:
    """Refused before anything is detected or queued."""
    if wish.source != AUTO:
        service.pairs.find(wish.source, wish.target)


async def wait_for_disconnect(request: Request) -> None:
    """Ends when the client closes the connection. Only after the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
