"""HTML: its texts are translated, everything else stays, byte for byte.

Tags, attributes, comments, scripts, styles and whatever says translate="no" are copied as they stand in the source. A
translation is written with & < > escaped: text of a client never becomes markup.
"""

import html
from collections import Counter
from collections.abc import Sequence

from heedful.serving.parts import Part, cut, unescaped

NO_TEXT = frozenset(["script", "style", "template", "noscript", "iframe", "svg", "math"])  # their text is no language


class Markup:
    """A text in HTML: `texts` are what to translate, `fill` puts their translations in."""

    def __init__(self, source: str) -> None:
        parts = cut(source)
        around = Around()
        self._parts = [part.raw for part in parts]
        self._places = [
            place
            for place, part in enumerate(parts)
            if around.is_translated(part) and part.kind == "text" and not part.raw.isspace()
        ]
        self.texts = [unescaped(self._parts[place]) for place in self._places]

    def fill(self, translations: Sequence[str]) -> str:
        parts = list(self._parts)
        for place, translation in zip(self._places, translations, strict=True):
            parts[place] = html.escape(translation, quote=False)
        return "".join(parts)


class Around:
    """The elements around a place, and whether texts are translated there. Each part is shown to it in its turn."""

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []
        self._names: Counter[str] = Counter()  # of the open ones: an end tag of none of them is passed over at once

    def is_translated(self, part: Part) -> bool:
        """Whether a text at this part, inside it if it opens an element, after it if it closes one, is translated."""
        if part.kind == "open":
            self._open.append((part.name, self._says(part)))
            self._names[part.name] += 1
        elif part.kind == "close" and self._names[part.name]:
            name = ""
            while name != part.name:  # and what was left open inside
                name, _ = self._open.pop()
                self._names[name] -= 1
        return self._here

    @property
    def _here(self) -> bool:
        return not self._open or self._open[-1][1]

    def _says(self, part: Part) -> bool:
        if part.name in NO_TEXT:
            return False
        said = part.attributes.get("translate", "?").lower()
        if said in ("no", "yes", ""):
            return said != "no"
        if "notranslate" in part.attributes.get("class", "").split():
            return False
        return self._here
