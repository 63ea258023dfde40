"""TMX, the exchange format of translators: streamed through expat, nothing fetched, nothing expanded.

Entities are refused, which takes away both classic attacks (external entities; "a billion laughs"). Inline codes
(<bpt>, <ph> …) are formatting, not text: taken out with their content and counted; <hi> and <mrk> only mark text.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from heedful.data.formats import HOW_TO_CHOOSE, Field, Record
from heedful.data.lines import DAMAGE, MAX_LINE_BYTES, open_bytes
from heedful.data.problems import BadData, Place, Problem

BLOCK = 1 << 16
CODES = {"bpt", "ept", "it", "ph", "ut", "sub"}
CHOOSE = f"Choose two of its languages ({HOW_TO_CHOOSE})."


Texts = dict[str, tuple[str, int]]  # language -> text, how many tags were taken out of it
Unit = tuple[int, int, Texts]  # line, byte


def tmx_records(path: Path, *, languages: tuple[str, str] | None, max_bytes: int) -> Iterator[Record]:
    """One record for each translation unit; a language that it lacks is an empty side."""
    units = _Units(str(path), max_bytes)
    for line, byte, texts in _read(path, units):
        languages = languages or _first_two(texts, str(path))
        yield Record(tuple(_cell(texts, language, line, byte) for language in languages))
    for language in languages or ():
        if not any(_is_a(found, language) for found in units.languages):
            listed = ", ".join(sorted(units.languages)) or "none"
            raise BadData("xml", Place(str(path)), f"no text in '{language}'; it has: {listed}", remedy=CHOOSE)


def tmx_languages(path: Path) -> tuple[str, str]:
    """The two languages of the first unit, in its order."""
    for _, _, texts in _read(path, _Units(str(path), MAX_LINE_BYTES)):
        return _first_two(texts, str(path))
    raise BadData("empty-file", Place(str(path)), "no translation unit in it")


def _read(path: Path, units: "_Units") -> Iterator[Unit]:
    """The units one by one, however large the file."""
    name, parser = str(path), units.parser
    n_read = 0
    with open_bytes(path) as stream:
        while True:
            try:
                block = stream.read1(BLOCK)
                n_read += len(block)
                parser.Parse(block, not block)
            except expat.ExpatError as error:
                place = Place(name, error.lineno, max(0, parser.ErrorByteIndex))
                raise BadData("xml", place, expat.errors.messages.get(error.code) or str(error)) from None
            except DAMAGE as error:
                place = Place(name, parser.CurrentLineNumber, max(0, parser.CurrentByteIndex))
                raise BadData("damaged", place, f"the file breaks off or is damaged there ({error})") from None
            if n_read - parser.CurrentByteIndex > units.max_bytes:  # one endless tag would fill the memory
                raise units.bad("xml", f"one tag of more than {units.max_bytes:,} bytes")
            yield from units.take()
            if not block:
                return


class _Units:
    """What expat has seen since `take` was last called."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self.name, self.max_bytes = name, max_bytes
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.SkippedEntityHandler = self._skipped
        self.languages: set[str] = set()
        self._done: list[Unit] = []
        self._place = (0, 0)
        self._texts: Texts = {}
        self._language = ""
        self._parts: list[str] = []
        self._size = self._n_tags = self._in_codes = 0
        self._in_segment = False

    def take(self) -> list[Unit]:
        done, self._done = self._done, []
        return done

    def bad(self, kind: str, value: str) -> BadData:
        return BadData(kind, Place(self.name, self.parser.CurrentLineNumber, self.parser.CurrentByteIndex), value)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self._place = self.parser.CurrentLineNumber, self.parser.CurrentByteIndex
            self._texts, self._size = {}, 0
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif tag == "seg":
            self._parts, self._n_tags, self._in_codes, self._in_segment = [], 0, 0, True
        elif self._in_segment:
            self._n_tags += 1
            self._in_codes += tag in CODES

    def _end(self, tag: str) -> None:
        if tag == "tu":
            self._done.append((*self._place, self._texts))
        elif tag == "seg":
            self._in_segment = False
            self.languages.add(self._language)
            self._texts.setdefault(canonical(self._language), ("".join(self._parts), self._n_tags))
        elif self._in_segment:
            self._in_codes -= tag in CODES

    def _characters(self, text: str) -> None:
        if self._in_segment and not self._in_codes:
            self._parts.append(text)
            self._size += len(text)
            if self._size > self.max_bytes:
                raise self.bad("xml", f"one unit of more than {self.max_bytes:,} characters")

    def _doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if internal:  # the only place where an entity could be declared: no other file is ever read
            raise self.bad("xml", "a document type with declarations of its own, which could hide anything")

    def _skipped(self, name: str, is_parameter: bool) -> None:
        raise self.bad("xml", f"uses the entity '&{name};', which XML itself does not have")


def canonical(language: str) -> str:
    return language.lower().replace("_", "-")


def _first_two(texts: Texts, name: str) -> tuple[str, str]:
    names = list(texts)
    if len(names) != 2:
        found = ", ".join(names) or "(none)"
        raise BadData("xml", Place(name), f"the first unit has the languages {found}; two are needed", remedy=CHOOSE)
    return names[0], names[1]


def _cell(texts: Texts, language: str, line: int, byte: int) -> Field:
    text, n_tags = texts.get(canonical(language)) or next(
        (found for name, found in texts.items() if _is_a(name, language)), ("", 0)
    )
    return Field(text, line, byte, (Problem("markup", f"{n_tags} tags"),) if n_tags else ())


def _is_a(found: str, wanted: str) -> bool:
    """`en-GB` is an `en`; `en` is no `en-GB`."""
    return f"{canonical(found)}-".startswith(f"{canonical(wanted)}-")
