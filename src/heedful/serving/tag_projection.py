"""Project the inline tags of a source text onto its translation.

The word alignment comes from the model's cross-attention; without it, words are aligned by their relative position. An
element encloses the words of the translation that are aligned with its own words. If these words are not adjacent, it
encloses the longest group, in which at most one foreign word may separate two words; so a wrong alignment does not
stretch an element over half of a sentence. An element without aligned words stays, empty, at the corresponding
position; so do single tags such as images. The result has every tag of the source, nested as in the source.
"""

import html
import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from heedful.decoding.translation import Translation
from heedful.serving.html_tokenizer import HtmlToken

# Chinese and Japanese have no spaces between words, so each character counts as a word. So does a punctuation mark.
_UNSPACED = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTER = rf"[^\s!-/:-@\[-`{{-~\u00a1-\u00bf\u2010-\u205e\u3000-\u303f\uff00-\uff0f\uff1a-\uff20{_UNSPACED}]"
_WORD = re.compile(rf"[{_UNSPACED}]|{_LETTER}+(?:['’-]{_LETTER}+)*|\S")
_MARKS = re.compile(r"^(?:▁|Ġ|##)+|(?:▁|</w>|@@)$")  # a tokenizer's signs for the begin or end of a word
SEARCHED = 24  # characters in which a token is searched if it is not at the expected position

Span = tuple[int, int]


@dataclass(eq=False)
class Node:
    """An element with its end tag, or a single tag."""

    raw: str
    end_raw: str
    words: Span  # indices of its words in the source
    position: int  # of the start tag in the source text
    depth: int  # 0: not inside another element of the text
    parent: "Node | None"
    is_element: bool
    children: list["Node"] = field(default_factory=list)


class TagProjector:
    """The tags of one text; `tags` are pairs (position in the text, tag), in order."""

    def __init__(self, text: str, tags: Sequence[tuple[int, HtmlToken]]) -> None:
        self.text = text
        self._tags = tags
        cuts = sorted({position for position, _ in tags})
        self._words = [span for word in _word_spans(text) for span in _split_at(word, cuts)]
        self._starts = [start for start, _ in self._words]
        self._nodes = self._make_nodes()

    def project(self, translation: Translation) -> str:
        """Return the translation with all tags and escaped text."""
        words = _word_spans(translation.text)
        if not words or not self._words:
            return "".join(part.raw for _, part in self._tags) + html.escape(translation.text, quote=False)
        links = self._links(translation, words)
        return ProjectedTags(self._nodes, (self.text, self._words), (translation.text, words), links).html()

    def _links(self, translation: Translation, words: Sequence[Span]) -> list[int | None]:
        """Return for each word of the translation the index of its source word, or None."""
        by_order: list[int | None] = [(2 * j + 1) * len(self._words) // (2 * len(words)) for j in range(len(words))]
        if not translation.alignment:
            return by_order
        source = _words_of_tokens(self.text, self._words, translation.source_tokens)
        target = _words_of_tokens(translation.text, words, translation.tokens)
        votes: list[Counter[int]] = [Counter() for _ in words]
        for from_token, to_token in translation.alignment:
            k, j = source[from_token], target[to_token]
            if k is not None and j is not None:
                votes[j][k] += 1
        links = [counts.most_common(1)[0][0] if counts else None for counts in votes]
        return links if any(link is not None for link in links) else by_order

    def _make_nodes(self) -> list[Node]:
        """Build the nodes in the order of their start tags, so that a parent comes before its children."""
        ends = _matched([part for _, part in self._tags])
        nodes: list[Node] = []
        open_elements: list[tuple[int, Node]] = []  # each with the index of its end tag
        for index, (position, part) in enumerate(self._tags):
            if open_elements and open_elements[-1][0] == index:
                open_elements.pop()
                continue
            end = ends.get(index)
            end_position, end_raw = (position, "") if end is None else (self._tags[end][0], self._tags[end][1].raw)
            words = bisect_left(self._starts, position), bisect_left(self._starts, end_position)
            parent = open_elements[-1][1] if open_elements else None
            node = Node(part.raw, end_raw, words, position, len(open_elements), parent, end is not None)
            nodes.append(node)
            if parent is not None:
                parent.children.append(node)
            if end is not None:
                open_elements.append((end, node))
        return nodes


class ProjectedTags:
    """One translation with its tags."""

    def __init__(
        self,
        nodes: Sequence[Node],
        source: tuple[str, Sequence[Span]],
        translation: tuple[str, Sequence[Span]],
        links: Sequence[int | None],
    ) -> None:
        """Place the tags. `source` and `translation` are texts with words; `links` has the source word of each word."""
        self._source, source_words = source
        self._text, self._words = translation
        words = self._words
        self._n_source = len(source_words)
        self._from: list[list[int]] = [[] for _ in source_words]  # aligned words of the translation
        for j, k in enumerate(links):
            if k is not None:
                self._from[k].append(j)
        self._owners: list[dict[int, Node]] = [{} for _ in words]  # depth -> element with an aligned word
        for node in nodes:
            if node.is_element:
                for j in self._aligned(*node.words):
                    self._owners[j][node.depth] = node
        self._covers: list[dict[int, Node]] = [{} for _ in words]  # depth -> enclosing element of the translation
        self._before: list[list[tuple[int, int, str]]] = [[] for _ in words]
        self._after: list[list[tuple[int, int, str]]] = [[] for _ in words]
        self._spans: dict[Node, Span | None] = {}  # words of the translation in each element
        for node in nodes:
            self._spans[node] = self._group(node) if node.is_element and self._has_span(node.parent) else None
            for j in range(*(self._spans[node] or (0, 0))):
                self._covers[j][node.depth] = node
        for node in nodes:
            self._put(node)

    def html(self) -> str:
        """Return the translation with its tags."""
        out, at = list[str](), 0
        for (start, end), before, after in zip(self._words, self._before, self._after, strict=True):
            out.append(html.escape(self._text[at:start], quote=False))
            out += [raw for _, _, raw in sorted(before, key=lambda tag: tag[:2])]
            out.append(html.escape(self._text[start:end], quote=False))
            out += [raw for _, _, raw in sorted(after, key=lambda tag: tag[:2])]
            at = end
        return "".join([*out, html.escape(self._text[at:], quote=False)])

    def _has_span(self, node: Node | None) -> bool:
        return node is None or self._spans[node] is not None

    def _span(self, node: Node | None) -> Span:
        """Return the span of an element in the translation; without an element, the whole translation."""
        span = (0, len(self._words)) if node is None else self._spans[node]
        assert span is not None
        return span

    def _aligned(self, first: int, end: int) -> Iterable[int]:
        """Yield the words of the translation that are aligned with these source words."""
        return (j for k in range(first, end) for j in self._from[k])

    def _group(self, node: Node) -> Span | None:
        """Find the longest group of words that are aligned with this element, inside the span of its parent."""
        first, end = self._span(node.parent)
        own = sorted(j for j in self._aligned(*node.words) if first <= j < end)
        groups: list[list[int]] = []
        for j in own:
            if groups and self._are_together(groups[-1][-1], j, node):
                groups[-1].append(j)
            else:
                groups.append([j])
        best = max(groups, key=len, default=None)
        return None if best is None else (best[0], best[-1] + 1)

    def _are_together(self, left: int, right: int, node: Node) -> bool:
        if right == left + 1:
            return True
        return right == left + 2 and self._owners[left + 1].get(node.depth, node) is node

    def _put(self, node: Node) -> None:
        if not self._has_span(node.parent):
            return  # `_all_tags` of the parent has written it
        span = self._spans[node]
        if span is not None:
            first, end = span
            self._before[first].append((node.depth, 1, node.raw))
            self._after[end - 1].append((-node.depth, 0, node.end_raw))
            return
        at, is_before = self._position(node)
        raw = _all_tags(node)
        if is_before:
            self._before[at].append((node.depth, 0, raw))
        else:
            self._after[at - 1].append((-node.depth, 1, raw))

    def _position(self, node: Node) -> tuple[int, bool]:
        """Return a word index for a node without a span; True: before that word, False: after the previous word."""
        first, end = self._span(node.parent)
        k_first, k_end = (0, self._n_source) if node.parent is None else node.parent.words
        k, after = node.words
        followed = self._among(self._from[after], first, end)[0] if after < k_end else None
        preceded = self._among(self._from[k - 1], first, end)[1] if k > k_first else None
        is_glued = node.position > 0 and not self._source[node.position - 1].isspace()
        if followed is not None and not (is_glued and preceded is not None):
            at, is_before = followed, True
        elif preceded is not None:
            at, is_before = preceded + 1, False
        else:
            at, is_before = first + (k - k_first) * (end - first) // max(1, k_end - k_first), True
        around = self._covers[at - 1].get(node.depth) if first < at < end else None
        if around is not None and around is self._covers[at].get(node.depth):
            at, is_before = self._span(around)[0], True  # not inside an unrelated element
        return at, (is_before or at == first) and at < end

    def _among(self, indices: Sequence[int], first: int, end: int) -> tuple[int | None, int | None]:
        """Return the first and the last of sorted indices within [first, end)."""
        left, right = bisect_left(indices, first), bisect_left(indices, end)
        return (indices[left], indices[right - 1]) if left < right else (None, None)


def _all_tags(node: Node) -> str:
    """Return the tags of an element without its text. A loop instead of recursion, because elements may nest deeply."""
    out: list[str] = []
    stack: list[Node | str] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        else:
            out.append(top.raw)
            stack += [top.end_raw, *reversed(top.children)]
    return "".join(out)


def _matched(tags: Sequence[HtmlToken]) -> dict[int, int]:
    """Map the index of each start tag to the index of its end tag; tags without a partner are missing."""
    ends: dict[int, int] = {}
    unclosed: list[int] = []
    names: Counter[str] = Counter()
    for index, part in enumerate(tags):
        if part.kind == "open":
            unclosed.append(index)
            names[part.name] += 1
        elif part.kind == "close" and names[part.name]:
            start = unclosed.pop()
            while tags[start].name != part.name:
                names[tags[start].name] -= 1
                start = unclosed.pop()
            names[part.name] -= 1
            ends[start] = index
    return ends


def _word_spans(text: str) -> list[Span]:
    return [match.span() for match in _WORD.finditer(text)]


def _split_at(word: Span, cuts: Sequence[int]) -> list[Span]:
    """Split a word at the tags inside it."""
    start, end = word
    bounds = [start, *cuts[bisect_left(cuts, start + 1) : bisect_left(cuts, end)], end]
    return list(itertools.pairwise(bounds))


def _words_of_tokens(text: str, words: Sequence[Span], tokens: Sequence[str]) -> list[int | None]:
    """Return for each token the index of the word in which it begins; None if the token is not in the text.

    A tokenizer may normalize the text and write rare characters as bytes. Such tokens are skipped, and the search
    continues with the next token.
    """
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    starts = [start for start, _ in words]
    indices: list[int | None] = []
    at = 0
    for token in tokens:
        core = _MARKS.sub("", token).lower()
        while at < len(text) and text[at].isspace():
            at += 1
        start = at if core and lowered.startswith(core, at) else lowered.find(core, at, at + SEARCHED) if core else -1
        if start < 0:
            indices.append(None)
            continue
        indices.append(max(0, bisect_left(starts, start + 1) - 1) if words else None)
        at = start + len(core)
    return indices
