"""HTML: its texts are translated, everything else stays, byte for byte.

The text of a block (a paragraph, an item, a cell) is translated as one, without the tags inside of it (<b>, <a> …), and
these are put around the words of the translation that they belong to (see carrying.py). What says translate="no", and
scripts and their like, are copied as they stand. A translation is written with & < > escaped: text of a client
never becomes markup.
"""

import html
import re
from collections import Counter
from collections.abc import Sequence

from heedful.decoding.translation import Translation
from heedful.serving.html_tokenizer import Part, tokenize_html, unescaped
from heedful.serving.tag_projection import TagProjector

NO_TEXT = frozenset(["script", "style", "template", "noscript", "iframe", "svg", "math"])  # their text is no language
_INLINE = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr"
)
INLINE = frozenset(_INLINE.split())  # elements within a sentence; every other tag begins a new one
MOST_DEEP = 16  # elements within each other in a sentence; the next one begins a new sentence, so that time is linear
KEEPS_BLANKS = ("pre", "textarea", "listing")
_BLANKS = re.compile(r"[\t\n\f\r ]+")


class HtmlDocument:
    """A text in HTML: `texts` are what to translate, `fill` puts their translations in.

    `has_tags` says for each text whether tags stand inside of it, so that it is worth to know which of its words each
    word of the translation comes from.
    """

    def __init__(self, source: str) -> None:
        self._out: list[str | Block] = []  # what is copied, and what is translated
        parts = tokenize_html(source)
        # Lines of what has no tag at all are lines; else they end where the writer's editor ended them.
        self._has_lines = all(part.kind == "text" for part in parts)
        self._cut_blocks(parts)
        self._blocks = [one for one in self._out if isinstance(one, Block)]
        self.texts = [block.text for block in self._blocks]
        self.has_tags = [block.carrier is not None for block in self._blocks]

    def fill(self, translations: Sequence[Translation]) -> str:
        left = iter(translations)
        filled = [one if isinstance(one, str) else one.fill(next(left)) for one in self._out]
        assert next(left, None) is None
        return "".join(filled)

    def _cut_blocks(self, parts: Sequence[Part]) -> None:
        around, run, depth = ElementStack(), list[Part](), 0
        keeps_blanks = False
        for part in parts:
            before = around.is_translated
            around.pass_by(part)
            depth = max(0, depth + (part.kind == "open") - (part.kind == "close"))
            if before and around.is_translated and _is_inline(part) and depth <= MOST_DEEP:
                keeps_blanks = self._has_lines or around.is_in(KEEPS_BLANKS)
                run.append(part)
                continue
            self._add(run, keeps_blanks=keeps_blanks)
            self._out.append(part.raw)
            run, depth = [], 0
        self._add(run, keeps_blanks=keeps_blanks)

    def _add(self, run: Sequence[Part], *, keeps_blanks: bool) -> None:
        """A sentence or several; what stands around its first and its last text is copied, if there is but one."""
        places = [place for place, part in enumerate(run) if part.kind == "text" and not part.raw.isspace()]
        if not places:
            self._out += [part.raw for part in run]
            return
        first, last = (places[0], places[0] + 1) if len(places) == 1 else (0, len(run))
        self._out += [part.raw for part in run[:first]]
        self._out.append(Block(run[first:last], keeps_blanks=keeps_blanks))
        self._out += [part.raw for part in run[last:]]


class Block:
    """What is translated as one text, and its tags."""

    def __init__(self, run: Sequence[Part], *, keeps_blanks: bool) -> None:
        self._raw = "".join(part.raw for part in run)
        pieces, size = list[str](), 0
        tags: list[tuple[int, Part]] = []  # each with its place in the text
        for part in run:
            if part.kind != "text":
                tags.append((size, part))
                continue
            text = unescaped(part.raw)
            if not keeps_blanks:
                text = _BLANKS.sub(" ", text)
                if text.startswith(" ") and pieces and pieces[-1].endswith(" "):
                    text = text[1:]
            if text:
                pieces.append(text)
                size += len(text)
        self.text = "".join(pieces)
        self.carrier = TagProjector(self.text, tags) if tags else None
        # Blanks at both ends mean nothing to readers, but those who wrote them find them again.
        ends = (run[0].raw if run[0].kind == "text" else "", run[-1].raw if run[-1].kind == "text" else "")
        self._before = ends[0][: len(ends[0]) - len(ends[0].lstrip("\t\n\f\r "))]
        self._after = ends[1][len(ends[1].rstrip("\t\n\f\r ")) :]

    def fill(self, translation: Translation) -> str:
        if translation.text == self.text:
            return self._raw
        if self.carrier is not None:
            filled = self.carrier.carry(translation)
        else:
            filled = html.escape(translation.text, quote=False)
        return self._before + filled.strip("\t\n\f\r ") + self._after


class ElementStack:
    """The elements around a place, and whether texts are translated there. Each part passes by in its turn."""

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []
        self._names: Counter[str] = Counter()  # of the open ones: an end tag of none of them is passed over at once

    @property
    def is_translated(self) -> bool:
        return not self._open or self._open[-1][1]

    def is_in(self, names: Sequence[str]) -> bool:
        return any(self._names[name] for name in names)

    def pass_by(self, part: Part) -> None:
        if part.kind == "open":
            self._open.append((part.name, self._says(part)))
            self._names[part.name] += 1
        elif part.kind == "close" and self._names[part.name]:
            name = ""
            while name != part.name:  # and what was left open inside
                name, _ = self._open.pop()
                self._names[name] -= 1

    def _says(self, part: Part) -> bool:
        if part.name in NO_TEXT:
            return False
        said = part.attributes.get("translate", "?").lower()
        if said in ("no", "yes", ""):
            return said != "no"
        if "notranslate" in part.attributes.get("class", "").split():
            return False
        return self.is_translated


def _is_inline(part: Part) -> bool:
    """Texts, comments, and the tags that stand within sentences."""
    return part.kind == "text" or (part.kind != "raw" and (part.name in INLINE or part.raw.startswith("<!--")))
