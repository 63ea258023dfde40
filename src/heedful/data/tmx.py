"""Read TMX, the exchange format of translation memories, as `Record`s: one for each translation unit.

The file is streamed through expat, which reports the line and byte of each unit, and whether a DOCTYPE
declares entities, in any encoding; `xml.etree` reports neither. BadData is raised for a file that declares entities,
which prevents both classic attacks, external entities and the "billion laughs". Nothing is ever fetched.

Inline codes (<bpt>, <ph> …) are formatting: they are removed with their contents and counted. <hi> and <mrk> enclose
text, which is kept.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from heedful.data.formats import HOW_TO_CHOOSE, Field, JsonKeys, Record
from heedful.data.lines import DAMAGE, open_bytes
from heedful.data.problems import BadData, Location, Problem

BLOCK = 1 << 16
CODES = {"bpt", "ept", "it", "ph", "ut", "sub"}
CHOOSE = f"Choose two of its languages ({HOW_TO_CHOOSE})."

Texts = dict[str, tuple[str, int]]  # language -> (text, number of inline codes removed from it)
Unit = tuple[int, int, Texts]  # line, byte, texts


def tmx_records(path: Path, *, languages: tuple[str, str] | None, max_bytes: int) -> Iterator[Record]:
    """Read the translation units; a language that a unit lacks is an empty side.

    Without `languages`, the first unit must have two, which are read in its order.
    """
    parser = _UnitParser(str(path), max_bytes)
    for line, byte, texts in _read_units(path, parser):
        languages = languages or _first_two(texts, str(path))
        fields = tuple(_field(texts, language, line, byte) for language in languages)
        yield Record(fields, keys=JsonKeys(languages, inside="translation"))
    for language in languages or ():
        if not any(_matches(name, language) for name in parser.languages):
            listed = ", ".join(sorted(parser.languages)) or "none"
            raise BadData("xml", Location(str(path)), f"no text in '{language}'; it has: {listed}", remedy=CHOOSE)


def _read_units(path: Path, units: "_UnitParser") -> Iterator[Unit]:
    """Feed the file to expat block by block, and yield the units that each block completes."""
    parser, name, n_read = units.parser, str(path), 0
    with open_bytes(path) as stream:
        while True:
            try:
                block = stream.read1(BLOCK)
                n_read += len(block)
                parser.Parse(block, not block)
            except expat.ExpatError as error:
                place = Location(name, error.lineno, max(0, parser.ErrorByteIndex))
                raise BadData("xml", place, expat.errors.messages.get(error.code) or str(error)) from None
            except DAMAGE as error:
                place = Location(name, parser.CurrentLineNumber, max(0, parser.CurrentByteIndex))
                raise BadData("damaged", place, f"the file is cut off or damaged there ({error})") from None
            if n_read - parser.CurrentByteIndex > units.max_bytes:  # an endless tag would fill the memory
                raise units.error(f"one tag of more than {units.max_bytes:,} bytes")
            yield from units.take()
            if not block:
                return


class _UnitParser:
    """Collects translation units from expat's events."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self.name, self.max_bytes = name, max_bytes
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.SkippedEntityHandler = self._skipped_entity
        self.languages: set[str] = set()  # all that occur in the file
        self._units: list[Unit] = []
        self._place = (0, 0)  # line and byte of the current unit
        self._texts: Texts = {}
        self._language = ""
        self._parts: list[str] = []  # of the current segment
        self._size = self._n_codes = 0
        self._depth = 0  # of nested inline codes
        self._in_segment = False

    def take(self) -> list[Unit]:
        """Return the units completed since the last call."""
        units, self._units = self._units, []
        return units

    def error(self, value: str) -> BadData:
        return BadData("xml", Location(self.name, self.parser.CurrentLineNumber, self.parser.CurrentByteIndex), value)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self._place = self.parser.CurrentLineNumber, self.parser.CurrentByteIndex
            self._texts, self._size = {}, 0
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif tag == "seg":
            self._parts, self._n_codes, self._depth, self._in_segment = [], 0, 0, True
        elif self._in_segment:
            self._n_codes += 1
            self._depth += tag in CODES

    def _end(self, tag: str) -> None:
        if tag == "tu":
            self._units.append((*self._place, self._texts))
        elif tag == "seg":
            self._in_segment = False
            self.languages.add(self._language)
            self._texts.setdefault(canonical(self._language), ("".join(self._parts), self._n_codes))
        elif self._in_segment:
            self._depth -= tag in CODES

    def _characters(self, text: str) -> None:
        if self._in_segment and not self._depth:
            self._parts.append(text)
            self._size += len(text)
            if self._size > self.max_bytes:
                raise self.error(f"one unit of more than {self.max_bytes:,} characters")

    def _doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if internal:  # entities can be declared nowhere else, because no other file is read
            raise self.error("a DOCTYPE with internal declarations, which could define entities")

    def _skipped_entity(self, name: str, is_parameter: bool) -> None:
        raise self.error(f"uses the entity '&{name};', which XML does not define")


def canonical(language: str) -> str:
    """Write a language code in lower case with hyphens: en_GB becomes en-gb."""
    return language.lower().replace("_", "-")


def _first_two(texts: Texts, name: str) -> tuple[str, str]:
    names = list(texts)
    if len(names) != 2:
        listed = ", ".join(names) or "(none)"
        raise BadData(
            "xml", Location(name), f"the first unit has the languages {listed}; two are needed", remedy=CHOOSE
        )
    return names[0], names[1]


def _field(texts: Texts, language: str, line: int, byte: int) -> Field:
    text, n_codes = texts.get(canonical(language)) or next(
        (value for name, value in texts.items() if _matches(name, language)), ("", 0)
    )
    return Field(text, line, byte, (Problem("markup", f"{n_codes} tags"),) if n_codes else ())


def _matches(name: str, language: str) -> bool:
    """Return whether `name` is `language` or a variety of it: en-GB matches en, but en does not match en-GB."""
    return f"{canonical(name)}-".startswith(f"{canonical(language)}-")
