"""Split an HTML document into texts to translate and markup, and put the translations back.

The text of a block (a paragraph, a list item, a table cell) is translated as a whole, without its inline tags (<b>,
<a> …); tag_projection.py then puts these tags around the corresponding words of the translation. Elements with
translate="no", scripts, styles and all other markup are copied byte for byte. A translation is written with & < >
escaped, so text of a client never becomes markup.
"""

import html
import re
from collections import Counter
from collections.abc import Sequence

from heedful.decoding.translation import Translation
from heedful.serving.html_tokenizer import HtmlToken, tokenize_html, unescaped
from heedful.serving.tag_projection import TagProjector

# Elements whose text is not translated.
NO_TEXT = frozenset(["script", "style", "template", "noscript", "iframe", "svg", "math"])
_INLINE = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr"
)
INLINE = frozenset(_INLINE.split())  # elements inside a sentence; every other tag begins a new block
MOST_DEEP = 16  # nested inline elements; a deeper one begins a new block, so that the time stays linear
KEEPS_BLANKS = ("pre", "textarea", "listing")
_BLANKS = re.compile(r"[\t\n\f\r ]+")


class HtmlDocument:
    """An HTML document: `texts` are its texts to translate, `fill` replaces them by translations.

    `has_tags` holds for each text whether it contains inline tags. Its translation then needs a word alignment.

    >>> document = HtmlDocument("<h1>News</h1><p>Good <b>morning</b></p>")
    >>> document.texts, document.has_tags
    (['News', 'Good morning'], [False, True])
    """

    def __init__(self, source: str) -> None:
        self._out: list[str | Block] = []  # markup to copy, and blocks to translate
        parts = tokenize_html(source)
        # Without any tag the source is plain text, and its line breaks are kept. In HTML a line break is a space.
        self._has_lines = all(part.kind == "text" for part in parts)
        self._cut_blocks(parts)
        self._blocks = [part for part in self._out if isinstance(part, Block)]
        self.texts = [block.text for block in self._blocks]
        self.has_tags = [block.projector is not None for block in self._blocks]

    def fill(self, translations: Sequence[Translation]) -> str:
        """Return the document with the translation of each text."""
        remaining = iter(translations)
        filled = [part if isinstance(part, str) else part.fill(next(remaining)) for part in self._out]
        assert next(remaining, None) is None
        return "".join(filled)

    def _cut_blocks(self, parts: Sequence[HtmlToken]) -> None:
        stack, run, depth = ElementStack(), list[HtmlToken](), 0
        keeps_blanks = False
        for part in parts:
            before = stack.is_translated
            stack.update(part)
            depth = max(0, depth + (part.kind == "open") - (part.kind == "close"))
            if before and stack.is_translated and _is_inline(part) and depth <= MOST_DEEP:
                keeps_blanks = self._has_lines or stack.is_inside(KEEPS_BLANKS)
                run.append(part)
                continue
            self._add(run, keeps_blanks=keeps_blanks)
            self._out.append(part.raw)
            run, depth = [], 0
        self._add(run, keeps_blanks=keeps_blanks)

    def _add(self, run: Sequence[HtmlToken], *, keeps_blanks: bool) -> None:
        """Add a run of inline parts as one block. If it has only one text, the tags around this text are copied."""
        texts = [index for index, part in enumerate(run) if part.kind == "text" and not part.raw.isspace()]
        if not texts:
            self._out += [part.raw for part in run]
            return
        first, last = (texts[0], texts[0] + 1) if len(texts) == 1 else (0, len(run))
        self._out += [part.raw for part in run[:first]]
        self._out.append(Block(run[first:last], keeps_blanks=keeps_blanks))
        self._out += [part.raw for part in run[last:]]


class Block:
    """A text that is translated as a whole, and its inline tags."""

    def __init__(self, run: Sequence[HtmlToken], *, keeps_blanks: bool) -> None:
        self._raw = "".join(part.raw for part in run)
        pieces, size = list[str](), 0
        tags: list[tuple[int, HtmlToken]] = []  # each with its position in the text
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
        self.projector = TagProjector(self.text, tags) if tags else None
        # White space at both ends does not change the rendering, but it is kept for people who read the source.
        ends = (run[0].raw if run[0].kind == "text" else "", run[-1].raw if run[-1].kind == "text" else "")
        self._before = ends[0][: len(ends[0]) - len(ends[0].lstrip("\t\n\f\r "))]
        self._after = ends[1][len(ends[1].rstrip("\t\n\f\r ")) :]

    def fill(self, translation: Translation) -> str:
        """Return the HTML of the translation, with the tags; an unchanged text keeps its source."""
        if translation.text == self.text:
            return self._raw
        if self.projector is not None:
            filled = self.projector.project(translation)
        else:
            filled = html.escape(translation.text, quote=False)
        return self._before + filled.strip("\t\n\f\r ") + self._after


class ElementStack:
    """The open elements at a position of the document, and whether text is translated there."""

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []
        self._names: Counter[str] = (
            Counter()
        )  # of the open elements, so that an end tag without a start tag costs nothing

    @property
    def is_translated(self) -> bool:
        """Whether text at this position is translated."""
        return not self._open or self._open[-1][1]

    def is_inside(self, names: Sequence[str]) -> bool:
        """Return whether any element with one of these names is open."""
        return any(self._names[name] for name in names)

    def update(self, part: HtmlToken) -> None:
        """Move past a part: open its element, or close the elements that its end tag closes."""
        if part.kind == "open":
            self._open.append((part.name, self._translates(part)))
            self._names[part.name] += 1
        elif part.kind == "close" and self._names[part.name]:
            name = ""
            while name != part.name:  # an end tag also closes the unclosed elements inside
                name, _ = self._open.pop()
                self._names[name] -= 1

    def _translates(self, part: HtmlToken) -> bool:
        """Return whether text inside this element is translated: by its name, its attributes, or as outside of it."""
        if part.name in NO_TEXT:
            return False
        translate = part.attributes.get("translate", "?").lower()
        if translate in ("no", "yes", ""):
            return translate != "no"
        if "notranslate" in part.attributes.get("class", "").split():
            return False
        return self.is_translated


def _is_inline(part: HtmlToken) -> bool:
    """Return whether a part belongs to a block: a text, a comment, or an inline tag."""
    return part.kind == "text" or (part.kind != "raw" and (part.name in INLINE or part.raw.startswith("<!--")))
