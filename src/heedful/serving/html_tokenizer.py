"""HTML cut into its parts: tags, comments, texts. Joined they are the source, whatever it is.

Cut as browsers do (the HTML standard's tokenization), in one pass: nothing is looked at again, so the time grows with
the length and not with its square, and there is no markup that it refuses. Python's html.parser does neither.
"""

import html
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

# "point": a tag with nothing inside, or a comment. "raw": the inside of a script and the like, and what never ends.
Kind = Literal["text", "open", "close", "point", "raw"]

NONE: Mapping[str, str] = MappingProxyType({})
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
RAW = frozenset(["script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"])  # no tag is read in these
LITERAL = frozenset(["title", "textarea"])  # nor in these, but what stands there is text

_TAG = re.compile(r"/?[a-zA-Z]")
_BLANKS = re.compile(r"[\t\n\f\r /]*")
_NAME = re.compile(r"[^\t\n\f\r />]+")
_ATTRIBUTE = re.compile(r"[^\t\n\f\r />][^\t\n\f\r />=]*")
_EQUALS = re.compile(r"[\t\n\f\r ]*=[\t\n\f\r ]*")
_UNQUOTED = re.compile(r"[^\t\n\f\r >]*")
_COMMENT_END = re.compile(r"--!?>")
_ENDS = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE) for name in RAW | LITERAL}
_ZEROS = re.compile(r"&#([xX]?)0{2,}+")
_TOO_LARGE = re.compile(r"&#(?:[0-9]{9,}+|[xX][0-9a-fA-F]{8,}+);?")


class Part(NamedTuple):
    kind: Kind
    raw: str  # as it stands in the source
    name: str = ""  # of a tag, in small letters
    attributes: Mapping[str, str] = NONE


def tokenize_html(source: str) -> list[Part]:
    """All parts of a source, in their order."""
    parts: list[Part] = []
    at = 0
    while at < len(source):
        text_end, part = _next_markup(source, at)
        if text_end > at:
            parts.append(Part("text", source[at:text_end]))
        at = text_end
        if part is not None:
            parts.append(part)
            at += len(part.raw)
            if part.kind == "open" and part.name in _ENDS:
                inside = _inside(source, at, part.name)
                parts += inside
                at += sum(len(one.raw) for one in inside)
    return parts


def unescaped(text: str) -> str:
    """&amp; and its like as characters. html.unescape alone fails with a number of thousands of digits."""
    if "&" not in text:
        return text
    return html.unescape(_TOO_LARGE.sub("\ufffd", _ZEROS.sub(r"&#\g<1>0", text)))


def _next_markup(source: str, start: int) -> tuple[int, Part | None]:
    """Where the text that begins here ends, and what comes then."""
    for at in _angles(source, start):
        after = source[at + 1 : at + 3]
        if _TAG.match(after):
            if source.find(">", at) < 0:
                return len(source), None  # no tag can end any more: "a <b" is a text
            return at, _tag(source, at, at + 1 + after.startswith("/"))
        if after[:1] in ("!", "?") or (after[:1] == "/" and len(after) == 2):
            return at, Part("point", source[at : _declaration_end(source, at)])
    return len(source), None


def _angles(source: str, at: int) -> Iterator[int]:
    while (at := source.find("<", at)) >= 0:
        yield at
        at += 1


def _declaration_end(source: str, at: int) -> int:
    """Of a comment, a doctype, or whatever else browsers take for a comment."""
    if not source.startswith("<!--", at):
        end = source.find(">", at)
        return len(source) if end < 0 else end + 1
    if source.startswith((">", "->"), at + 4):  # <!--> and <!---> are whole
        return source.index(">", at) + 1
    found = _COMMENT_END.search(source, at + 4)
    return len(source) if found is None else found.end()


def _tag(source: str, start: int, name_at: int) -> Part:
    name = _NAME.match(source, name_at)
    assert name is not None
    lowered, at = name[0].lower(), name.end()
    attributes: dict[str, str] = {}
    while True:
        blanks = _BLANKS.match(source, at)
        assert blanks is not None
        at = blanks.end()
        if at == len(source):
            return Part("raw", source[start:])
        if source[at] == ">":
            raw = source[start : at + 1]
            if name_at == start + 2:
                return Part("close", raw, lowered)
            is_point = lowered in VOID or (blanks[0].endswith("/") and lowered not in _ENDS)
            return Part("point" if is_point else "open", raw, lowered, attributes)
        attribute = _ATTRIBUTE.match(source, at)
        assert attribute is not None
        value, at = _value(source, attribute.end())
        attributes.setdefault(attribute[0].lower(), unescaped(value))


def _value(source: str, at: int) -> tuple[str, int]:
    """What an attribute is said to be, and where that ends."""
    equals = _EQUALS.match(source, at)
    if equals is None:
        return "", at
    at = equals.end()
    quote = source[at : at + 1]
    if quote in ('"', "'") and quote:
        end = source.find(quote, at + 1)
        return ("", len(source)) if end < 0 else (source[at + 1 : end], end + 1)
    unquoted = _UNQUOTED.match(source, at)
    assert unquoted is not None
    return unquoted[0], unquoted.end()


def _inside(source: str, at: int, name: str) -> list[Part]:
    """What stands before the end tag of an element in which no other tag is read."""
    found = None if name == "plaintext" else _ENDS[name].search(source, at)
    inside = source[at : len(source) if found is None else found.start()]
    return [Part("text" if name in LITERAL else "raw", inside)] if inside else []
