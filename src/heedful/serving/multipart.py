"""Forms as browsers send them when a script says FormData, and curl with -F: fields of text, and no files."""

import re

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
