"""HTML: its texts are translated, everything else stays, byte for byte.

Tags, attributes, comments, scripts, styles and whatever says translate="no" are copied as they stand in the source. A
translation is written with & < > escaped: text of a client never becomes markup.
"""

import html
from collections.abc import Sequence
from html.parser import HTMLParser

# Elements that have no end tag, and those whose text is no language.
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])
NO_TEXT = frozenset(["script", "style", "template", "noscript", "iframe", "svg", "math"])


class Markup:
    """A text in HTML: `texts` are what to translate, `fill` puts their translations in."""

    def __init__(self, source: str) -> None:
        parts = _Cutter(source).cut()
        self._parts = [raw for _, raw in parts]
        self._places = [place for place, (is_text, raw) in enumerate(parts) if is_text and not raw.isspace()]
        self.texts = [html.unescape(self._parts[place]) for place in self._places]

    def fill(self, translations: Sequence[str]) -> str:
        parts = list(self._parts)
        for place, translation in zip(self._places, translations, strict=True):
            parts[place] = html.escape(translation, quote=False)
        return "".join(parts)


class _Cutter(HTMLParser):
    """Cuts a source where the parser sees that something begins: joined, the parts are the source."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self._source = source
        self._line_starts = [0]
        for line in source.split("\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self._found: list[tuple[int, bool]] = []  # where something begins, and whether it is a text to translate
        self._open: list[tuple[str, bool]] = []  # elements around this place: name, whether texts are translated

    def cut(self) -> list[tuple[bool, str]]:
        self.feed(self._source)
        self.close()
        starts = [(0, False), *self._found]
        ends = [start for start, _ in self._found] + [len(self._source)]
        return [(is_text, self._source[start:end]) for (start, is_text), end in zip(starts, ends, strict=True)]

    def _here(self, *, is_text: bool = False) -> None:
        line, column = self.getpos()
        self._found.append((self._line_starts[line - 1] + column, is_text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._here()
        if tag not in VOID:
            self._open.append((tag, self._says(tag, dict(attrs))))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._here()

    def handle_endtag(self, tag: str) -> None:
        self._here()
        for place in range(len(self._open) - 1, -1, -1):
            if self._open[place][0] == tag:
                del self._open[place:]  # and what was left open inside
                return

    def handle_data(self, data: str) -> None:
        self._here(is_text=not self._open or self._open[-1][1])

    def handle_comment(self, data: str) -> None:
        self._here()

    def handle_decl(self, decl: str) -> None:
        self._here()

    def handle_pi(self, data: str) -> None:
        self._here()

    def unknown_decl(self, data: str) -> None:
        self._here()

    def _says(self, tag: str, attributes: dict[str, str | None]) -> bool:
        if tag in NO_TEXT:
            return False
        said = (attributes.get("translate") or "").lower()
        if "translate" in attributes and said in ("no", "yes", ""):
            return said != "no"
        if "notranslate" in (attributes.get("class") or "").split():
            return False
        return not self._open or self._open[-1][1]
