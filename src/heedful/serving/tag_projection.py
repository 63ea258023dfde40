"""Tags of a sentence, carried over to its translation.

An element goes around those words of the translation that come from its own words, by where the model looked when it
wrote them. Where they do not stand together, it goes around the most that do, with at most one other word between two
of them: one wrong link then stretches no link over half of a sentence. An element none of whose words is found again
stays, empty, at its place; so does what has no inside, such as an image. If it is not known where the model looked, the
order of the words is taken to be the same. Every tag of the source is in the result, elements within those that they
were in.
"""

import html
import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from heedful.decoding.translation import Translation
from heedful.serving.html_tokenizer import Part

# Chinese and Japanese write no blanks: each of their characters is a word here. Marks are words of their own.
_UNSPACED = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTER = rf"[^\s!-/:-@\[-`{{-~\u00a1-\u00bf\u2010-\u205e\u3000-\u303f\uff00-\uff0f\uff1a-\uff20{_UNSPACED}]"
_WORD = re.compile(rf"[{_UNSPACED}]|{_LETTER}+(?:['’-]{_LETTER}+)*|\S")
_MARKS = re.compile(r"^(?:▁|Ġ|##)+|(?:▁|</w>|@@)$")  # of a word's begin or end, in the pieces of tokenizers
SEARCHED = 24  # characters ahead for a token that does not stand where it is expected

Span = tuple[int, int]


@dataclass(eq=False)
class Node:
    """An element with its end tag, or a single tag; `words` are the numbers of its words in the source, in it."""

    raw: str
    end_raw: str
    words: Span
    place: int  # in the source
    depth: int  # 0: directly in the sentence
    parent: "Node | None"
    is_element: bool
    inside: list["Node"] = field(default_factory=list)


class TagProjector:
    """The tags of one text. `tags` have their places in it, in order."""

    def __init__(self, text: str, tags: Sequence[tuple[int, Part]]) -> None:
        self.text = text
        self._tags = tags
        cuts = sorted({place for place, _ in tags})
        self._words = [span for word in _spans_of_words(text) for span in _cut_at(word, cuts)]
        self._starts = [start for start, _ in self._words]
        self._nodes = self._make_nodes()

    def carry(self, translation: Translation) -> str:
        """The translation with all tags, its text escaped."""
        words = _spans_of_words(translation.text)
        if not words or not self._words:
            return "".join(part.raw for _, part in self._tags) + html.escape(translation.text, quote=False)
        links = self._links(translation, words)
        return ProjectedTags(self._nodes, (self.text, self._words), (translation.text, words), links).html()

    def _links(self, translation: Translation, words: Sequence[Span]) -> list[int | None]:
        """For each word of the translation the word of the source that it comes from."""
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
        links = [one.most_common(1)[0][0] if one else None for one in votes]
        return links if any(link is not None for link in links) else by_order

    def _make_nodes(self) -> list[Node]:
        """In their order, each after those that it is in."""
        ends = _matched([part for _, part in self._tags])
        nodes: list[Node] = []
        around: list[tuple[int, Node]] = []  # with the number of the end tag
        for number, (place, part) in enumerate(self._tags):
            if around and around[-1][0] == number:
                around.pop()
                continue
            end = ends.get(number)
            end_place, end_raw = (place, "") if end is None else (self._tags[end][0], self._tags[end][1].raw)
            words = bisect_left(self._starts, place), bisect_left(self._starts, end_place)
            parent = around[-1][1] if around else None
            node = Node(part.raw, end_raw, words, place, len(around), parent, end is not None)
            nodes.append(node)
            if parent is not None:
                parent.inside.append(node)
            if end is not None:
                around.append((end, node))
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
        """Two texts with their words; for each word of the second where it comes from."""
        self._source, source_words = source
        self._text, self._words = translation
        words = self._words
        self._n_source = len(source_words)
        self._from: list[list[int]] = [[] for _ in source_words]  # words of the translation that come from each
        for j, k in enumerate(links):
            if k is not None:
                self._from[k].append(j)
        self._owners: list[dict[int, Node]] = [{} for _ in words]  # depth -> whose word it is
        for node in nodes:
            if node.is_element:
                for j in self._coming_from(*node.words):
                    self._owners[j][node.depth] = node
        self._covers: list[dict[int, Node]] = [{} for _ in words]  # depth -> in which element it stands
        self._before: list[list[tuple[int, int, str]]] = [[] for _ in words]
        self._after: list[list[tuple[int, int, str]]] = [[] for _ in words]
        self._found: dict[Node, Span | None] = {}
        for node in nodes:
            self._found[node] = self._group(node) if node.is_element and self._is_there(node.parent) else None
            for j in range(*(self._found[node] or (0, 0))):
                self._covers[j][node.depth] = node
        for node in nodes:
            self._put(node)

    def html(self) -> str:
        out, at = list[str](), 0
        for (start, end), before, after in zip(self._words, self._before, self._after, strict=True):
            out.append(html.escape(self._text[at:start], quote=False))
            out += [raw for _, _, raw in sorted(before, key=lambda one: one[:2])]
            out.append(html.escape(self._text[start:end], quote=False))
            out += [raw for _, _, raw in sorted(after, key=lambda one: one[:2])]
            at = end
        return "".join([*out, html.escape(self._text[at:], quote=False)])

    def _is_there(self, node: Node | None) -> bool:
        return node is None or self._found[node] is not None

    def _span(self, node: Node | None) -> Span:
        """Words of the translation in an element."""
        found = (0, len(self._words)) if node is None else self._found[node]
        assert found is not None
        return found

    def _coming_from(self, first: int, end: int) -> Iterable[int]:
        return (j for k in range(first, end) for j in self._from[k])

    def _group(self, node: Node) -> Span | None:
        """The most words from this element that stand together, within the element that it is in."""
        first, end = self._span(node.parent)
        own = sorted(j for j in self._coming_from(*node.words) if first <= j < end)
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
        if not self._is_there(node.parent):
            return  # written with what it is in
        found = self._found[node]
        if found is not None:
            first, end = found
            self._before[first].append((node.depth, 1, node.raw))
            self._after[end - 1].append((-node.depth, 0, node.end_raw))
            return
        at, is_before = self._place(node)
        raw = _all_tags(node)
        if is_before:
            self._before[at].append((node.depth, 0, raw))
        else:
            self._after[at - 1].append((-node.depth, 1, raw))

    def _place(self, node: Node) -> tuple[int, bool]:
        """Before which word of the translation, and whether it goes with that word, not with the one before."""
        first, end = self._span(node.parent)
        k_first, k_end = (0, self._n_source) if node.parent is None else node.parent.words
        k, after = node.words
        followed = self._among(self._from[after], first, end)[0] if after < k_end else None
        preceded = self._among(self._from[k - 1], first, end)[1] if k > k_first else None
        is_glued = node.place > 0 and not self._source[node.place - 1].isspace()
        if followed is not None and not (is_glued and preceded is not None):
            at, is_before = followed, True
        elif preceded is not None:
            at, is_before = preceded + 1, False
        else:
            at, is_before = first + (k - k_first) * (end - first) // max(1, k_end - k_first), True
        around = self._covers[at - 1].get(node.depth) if first < at < end else None
        if around is not None and around is self._covers[at].get(node.depth):
            at, is_before = self._span(around)[0], True  # not into a neighbour
        return at, (is_before or at == first) and at < end

    def _among(self, numbers: Sequence[int], first: int, end: int) -> tuple[int | None, int | None]:
        """The first and the last of sorted numbers that lie between two."""
        left, right = bisect_left(numbers, first), bisect_left(numbers, end)
        return (numbers[left], numbers[right - 1]) if left < right else (None, None)


def _all_tags(node: Node) -> str:
    """An element without its text: written without recursion, since it may be deep."""
    out: list[str] = []
    left: list[Node | str] = [node]
    while left:
        one = left.pop()
        if isinstance(one, str):
            out.append(one)
        else:
            out.append(one.raw)
            left += [one.end_raw, *reversed(one.inside)]
    return "".join(out)


def _matched(tags: Sequence[Part]) -> dict[int, int]:
    """Number of each start tag -> number of its end tag. Those without are single tags."""
    ends: dict[int, int] = {}
    around: list[int] = []
    names: Counter[str] = Counter()
    for number, part in enumerate(tags):
        if part.kind == "open":
            around.append(number)
            names[part.name] += 1
        elif part.kind == "close" and names[part.name]:
            start = around.pop()
            while tags[start].name != part.name:
                names[tags[start].name] -= 1
                start = around.pop()
            names[part.name] -= 1
            ends[start] = number
    return ends


def _spans_of_words(text: str) -> list[Span]:
    return [found.span() for found in _WORD.finditer(text)]


def _cut_at(word: Span, cuts: Sequence[int]) -> list[Span]:
    """A tag may stand inside of a word."""
    start, end = word
    places = [start, *cuts[bisect_left(cuts, start + 1) : bisect_left(cuts, end)], end]
    return list(itertools.pairwise(places))


def _words_of_tokens(text: str, words: Sequence[Span], tokens: Sequence[str]) -> list[int | None]:
    """For each token the number of the word that it begins in; None where it is not found in the text.

    A tokenizer may have changed the text, and writes rare characters as bytes: what follows is then found again.
    """
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    starts = [start for start, _ in words]
    found: list[int | None] = []
    at = 0
    for token in tokens:
        core = _MARKS.sub("", token).lower()
        while at < len(text) and text[at].isspace():
            at += 1
        place = at if core and lowered.startswith(core, at) else lowered.find(core, at, at + SEARCHED) if core else -1
        if place < 0:
            found.append(None)
            continue
        found.append(max(0, bisect_left(starts, place + 1) - 1) if words else None)
        at = place + len(core)
    return found
