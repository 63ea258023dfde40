"""Tokenize HTML into tags, comments and texts. The parts joined are the source, for any input.

The rules are those of the HTML standard's tokenization, as in browsers. The tokenizer reads the source once, so its
time is linear, and it accepts any markup. Python's html.parser guarantees neither.
"""

import html
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

# "point": an element without content, or a comment. "raw": the content of a script or style, and an unfinished tag.
Kind = Literal["text", "open", "close", "point", "raw"]

NONE: Mapping[str, str] = MappingProxyType({})
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
RAW = frozenset(
    ["script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"]
)  # their content has no tags and is not text
LITERAL = frozenset(["title", "textarea"])  # their content has no tags, but is text

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


class HtmlToken(NamedTuple):
    """A tag, comment or text."""

    kind: Kind
    raw: str  # the source of the part
    name: str = ""  # of a tag, in lower case
    attributes: Mapping[str, str] = NONE


def tokenize_html(source: str) -> list[HtmlToken]:
    """Return all parts of a source in order."""
    parts: list[HtmlToken] = []
    at = 0
    while at < len(source):
        text_end, part = _next_markup(source, at)
        if text_end > at:
            parts.append(HtmlToken("text", source[at:text_end]))
        at = text_end
        if part is not None:
            parts.append(part)
            at += len(part.raw)
            if part.kind == "open" and part.name in _ENDS:
                content = _raw_content(source, at, part.name)
                parts += content
                at += sum(len(part.raw) for part in content)
    return parts


def unescaped(text: str) -> str:
    """Replace character references (&amp; …) by characters.

    html.unescape alone fails for a number with thousands of digits, so leading zeros and large numbers are replaced
    first.
    """
    if "&" not in text:
        return text
    return html.unescape(_TOO_LARGE.sub("\ufffd", _ZEROS.sub(r"&#\g<1>0", text)))


def _next_markup(source: str, start: int) -> tuple[int, HtmlToken | None]:
    """Return the end of the text that begins at `start`, and the tag or comment that follows."""
    for at in _angles(source, start):
        after = source[at + 1 : at + 3]
        if _TAG.match(after):
            if source.find(">", at) < 0:
                return len(source), None  # no tag can end after this position: "a <b" is text
            return at, _tag(source, at, at + 1 + after.startswith("/"))
        if after[:1] in ("!", "?") or (after[:1] == "/" and len(after) == 2):
            return at, HtmlToken("point", source[at : _declaration_end(source, at)])
    return len(source), None


def _angles(source: str, at: int) -> Iterator[int]:
    while (at := source.find("<", at)) >= 0:
        yield at
        at += 1


def _declaration_end(source: str, at: int) -> int:
    """Return the end of a comment, a doctype, or other markup that browsers treat as a comment."""
    if not source.startswith("<!--", at):
        end = source.find(">", at)
        return len(source) if end < 0 else end + 1
    if source.startswith((">", "->"), at + 4):  # <!--> and <!---> are complete comments
        return source.index(">", at) + 1
    end_mark = _COMMENT_END.search(source, at + 4)
    return len(source) if end_mark is None else end_mark.end()


def _tag(source: str, start: int, name_at: int) -> HtmlToken:
    name = _NAME.match(source, name_at)
    assert name is not None
    lowered, at = name[0].lower(), name.end()
    attributes: dict[str, str] = {}
    while True:
        blanks = _BLANKS.match(source, at)
        assert blanks is not None
        at = blanks.end()
        if at == len(source):
            return HtmlToken("raw", source[start:])
        if source[at] == ">":
            raw = source[start : at + 1]
            if name_at == start + 2:
                return HtmlToken("close", raw, lowered)
            is_point = lowered in VOID or (blanks[0].endswith("/") and lowered not in _ENDS)
            return HtmlToken("point" if is_point else "open", raw, lowered, attributes)
        attribute = _ATTRIBUTE.match(source, at)
        assert attribute is not None
        value, at = _value(source, attribute.end())
        attributes.setdefault(attribute[0].lower(), unescaped(value))


def _value(source: str, at: int) -> tuple[str, int]:
    """Return the value of an attribute and the position after it."""
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


def _raw_content(source: str, at: int, name: str) -> list[HtmlToken]:
    """Return the content of an element that contains no tags, up to its end tag."""
    end_tag = None if name == "plaintext" else _ENDS[name].search(source, at)
    content = source[at : len(source) if end_tag is None else end_tag.start()]
    return [HtmlToken("text" if name in LITERAL else "raw", content)] if content else []
