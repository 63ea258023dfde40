"""Segment texts: divide them into lines, sentences and parts that fit into the model, and join their translations.

    text ── lines ──┬── short enough: whole
                    └── too long ── split: sentences, and parts of those that are still too long
                                    truncate: its beginning · extract: its most important sentences
                                    error: refused · whole: whole, if positions have no end

Spaces and line breaks between the segments are not shown to the model, and are the same in the result. Nothing is cut
without a count in `DecodingStats`.
"""

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import sentencex

from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.input_text import LINE_BREAK, BadText, checked
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer

# Lines are read in windows: sentencex compares each punctuation mark with each quotation, in quadratic time.
WINDOW = 4096

# A sentence that is too long is cut after the end of a clause, if it has one. A Latin mark must be before a space,
# since 3,5 and 10:30 are one word.
_CLAUSE = re.compile(r"(?:[，、；：。！？،؛؟।…—–]+|[,;:.!?]+(?=\s))\s*")
_SPACES = re.compile(r"\s+")
_ODD_BLANK = re.compile(r"[^\S ]")
_MOST_MARKS = 32  # combining marks of one letter that are kept together

Lengths = Callable[[Sequence[str]], list[int]]  # texts -> the number of tokens of each


def split_sentences(line: str, *, language: str = "en") -> list[str]:
    """Return the sentences of a text without line breaks, each with the spaces after it.

    sentencex finds them (about 300 languages). If it should change a text, which is checked, that text stays whole.

    >>> split_sentences("Dr. Smith ran. He fell.")
    ['Dr. Smith ran. ', 'He fell.']
    """
    sentences: list[str] = []
    start = 0
    while start < len(line):
        window = line[start : start + WINDOW]
        sentences_here = _segment(window, language)
        if start + len(window) < len(line):
            if len(sentences_here) > 1:
                sentences_here.pop()  # it may continue after the window
            else:
                sentences_here = [_up_to_a_gap(window)]
        sentences += sentences_here
        start += sum(map(len, sentences_here))
    return sentences


def _up_to_a_gap(window: str) -> str:
    """Return the window up to its last clause or, if it has none, its last space, so that no word is cut."""
    for mark in (_CLAUSE, _SPACES):
        ends = [match.end() for match in mark.finditer(window)]
        if ends:
            return window[: ends[-1]]
    return window[: _with_its_marks(window, 0, len(window) - 1)]  # the last letter may have a mark in the next window


def _segment(window: str, language: str) -> list[str]:
    # sentencex 1.0.32 assumes that a space before a full stop has one byte, and panics at U+00A0.
    plain = _ODD_BLANK.sub(" ", window)
    try:
        found = sentencex.segment(language, plain)
    except BaseException as error:
        if (
            type(error).__name__ != "PanicException"
        ):  # a panic of Rust is no Exception, and its class cannot be imported
            raise
        return [window]
    if "".join(found) != plain:
        return [window]
    ends = list(itertools.accumulate(map(len, found)))
    return [window[start:end] for start, end in itertools.pairwise([0, *ends]) if start < end]


def cut_to_fit(text: str, *, room: int, lengths: Lengths) -> list[str]:
    """Cut a text into parts of at most `room` tokens: after clauses, else between words, else between characters.

    A single character of more than `room` tokens stays as it is.
    """
    parts = [text]
    for cut in (_after_clauses, _between_words, _between_characters):
        measured = zip(parts, lengths(parts), strict=True)
        parts = [
            piece for part, length in measured for piece in ([part] if length <= room else cut(part, room, lengths))
        ]
    return parts


def _after_clauses(text: str, room: int, lengths: Lengths) -> list[str]:
    return _pack(_after(_CLAUSE, text), room, lengths)


def _between_words(text: str, room: int, lengths: Lengths) -> list[str]:
    return _pack(_after(_SPACES, text), room, lengths)


def _after(mark: re.Pattern[str], text: str) -> list[str]:
    ends = [match.end() for match in mark.finditer(text)]
    return [text[start:end] for start, end in itertools.pairwise([0, *ends, len(text)]) if start < end]


def _pack(atoms: list[str], room: int, lengths: Lengths) -> list[str]:
    """Join neighbours into as few groups as possible, of similar lengths, so that no word is left alone."""
    measured = lengths(atoms)
    fewest = len(_fill(atoms, measured, room))
    low, high = 1, room  # the smallest size with the same number of groups
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_fill(atoms, measured, middle)) <= fewest else (middle + 1, high)
    groups = _fill(atoms, measured, high)
    # Joined texts may have more tokens than the sum; this is rare, and such a group is halved.
    while True:
        measured = lengths(["".join(group) for group in groups])
        if all(length <= room or len(group) == 1 for group, length in zip(groups, measured, strict=True)):
            return ["".join(group) for group in groups]
        groups = [
            half
            for group, length in zip(groups, measured, strict=True)
            for half in ([group] if length <= room else [group[: len(group) // 2], group[len(group) // 2 :]])
            if half
        ]


def _fill(atoms: list[str], measured: list[int], room: int) -> list[list[str]]:
    groups: list[list[str]] = []
    free = 0
    for atom, length in zip(atoms, measured, strict=True):
        if not groups or length > free:
            groups.append([])
            free = room
        groups[-1].append(atom)
        free -= length
    return groups


def _between_characters(text: str, room: int, lengths: Lengths) -> list[str]:
    parts: list[str] = []
    start, size = 0, room
    while start < len(text):
        size = min(size, len(text) - start)
        while size > 1 and (length := lengths([text[start : start + size]])[0]) > room:
            size = max(1, min(size - 1, size * room // length))
        end = _with_its_marks(text, start, start + size)
        parts.append(text[start:end])
        start, size = end, 2 * size  # a token has between one and twenty characters: adapt the size
    return parts


def _with_its_marks(text: str, start: int, end: int) -> int:
    """Return `end`, or an earlier one that does not separate a letter from its marks, or the parts of an emoji."""
    for back in range(end, max(start, end - _MOST_MARKS), -1):
        if back >= len(text) or not _belongs_to_the_last(text, back):
            return back
    return end


def _belongs_to_the_last(text: str, place: int) -> bool:
    joiner = "\u200d"
    return (
        unicodedata.category(text[place]).startswith("M") or text[place] == joiner or text[place - 1 : place] == joiner
    )


Vector = dict[int, float]


def centrality(parts: Sequence[Sequence[int]]) -> list[float]:
    """Return the cosine between the TF-IDF vector of each part and the sum of all (Radev et al. 2004).

    Tokens instead of words make it work for every language that the model reads. A part of nothing but tokens that all
    parts have gets 0.
    """
    counts = [Counter(ids) for ids in parts]
    n_parts_with = Counter(token for count in counts for token in count)
    # 1 + n: with two parts, a token of both must still count.
    weights = {token: math.log((1 + len(parts)) / n) for token, n in n_parts_with.items()}
    vectors = [_unit({token: n * weights[token] for token, n in count.items()}) for count in counts]
    whole: Vector = {}
    for vector in vectors:
        for token, value in vector.items():
            whole[token] = whole.get(token, 0.0) + value
    whole = _unit(whole)
    return [sum(value * whole[token] for token, value in vector.items()) for vector in vectors]


def most_important(parts: Sequence[Sequence[int]], *, room: int) -> list[int]:
    """Return the indices of the parts to keep, ascending: the most central parts that together have `room` tokens."""
    scores = centrality(parts)
    kept: list[int] = []
    for number in sorted(range(len(parts)), key=lambda number: -scores[number]):  # the first of equal ones
        if len(parts[number]) <= room:
            kept.append(number)
            room -= len(parts[number])
    return sorted(kept)


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {token: value / length for token, value in vector.items()} if length else vector


Long = Literal["split", "truncate", "extract", "error", "whole"]

_BLANKS = re.compile(r"\s+")
# Scripts without spaces between sentences: Chinese and Japanese, with their punctuation and full-width forms.
UNSPACED = re.compile("[\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60]")
_BRAILLE = re.compile("[\u2801-\u28ff]")  # letters, although Unicode counts them among the symbols


# ASCII only: in a script without spaces, a sentence may follow directly.
_ADDRESS = re.compile(
    r"[(<\[\"']*(?:(?:[A-Za-z][A-Za-z0-9+.-]*://|www\.|mailto:)[!-~]+|[!-?A-~]+@[!-?A-~]+\.[!-?A-~]+)"
)


def has_words(text: str) -> bool:
    """Whether there is anything to translate: letters or digits, and not only symbols, emoji and addresses.

    >>> has_words("→ https://example.org"), has_words("see https://example.org")
    (False, True)
    """
    if not (any(map(str.isalnum, text)) or _BRAILLE.search(text)):
        return False
    if not any(mark in text for mark in ("://", "@", "www.")):
        return True
    words = (word for word in text.split() if any(map(str.isalnum, word)) or _BRAILLE.search(word))
    return not all(map(_ADDRESS.fullmatch, words))


@dataclass(frozen=True)
class Segment:
    """A part of a text that is one input of the model."""

    text: str
    ids: list[int]


@dataclass
class SegmentedText:
    """A text as segments and the gaps around them: gaps[i] is before segment i, the last gap after all segments."""

    segments: list[Segment] = field(default_factory=list)
    gaps: list[str] = field(default_factory=lambda: [""])

    def copy(self, text: str) -> None:
        """Add text that is copied into the result."""
        self.gaps[-1] += text

    def add(self, segment: Segment) -> None:
        """Add a segment to translate."""
        self.segments.append(segment)
        self.gaps.append("")

    def join(self, translations: Sequence[str]) -> str:
        """Join the translations of the segments with the gaps; without segments, return the copied text."""
        if not self.segments:
            return "" if self.gaps[0].isspace() else self.gaps[0]
        parts = [self.gaps[0]]
        for number, translation in enumerate(translations):
            if number:
                parts.append(self._gap(number, translations))
            parts.append(translation)
        return "".join([*parts, self.gaps[-1]])

    def _gap(self, number: int, translations: Sequence[str]) -> str:
        """Return the gap of the source, unless only one of source and translation has spaces between sentences."""
        gap = self.gaps[number]
        if gap not in ("", " "):
            return gap
        source = _is_unspaced(self.segments[number - 1].text, self.segments[number].text)
        target = _is_unspaced(translations[number - 1], translations[number])
        return gap if source is None or target is None or source == target else "" if target else " "


def _is_unspaced(left: str, right: str) -> bool | None:
    """Whether the characters around a gap belong to a script without spaces; None if they differ in that."""
    sides = {bool(UNSPACED.match(character)) for character in (left[-1:], right[:1]) if character}
    return sides.pop() if len(sides) == 1 else None


class Segmenter:
    """Divides texts into segments of less than `limit` source tokens; the limit also counts the end of the source.

    `long` says how to treat lines that are too long. `prefix` is put before every segment: T5 is told its task in that
    way ("summarize: ").
    """

    def __init__(
        self,
        tokenizer: "Tokenizer",
        reach: SourceLimit,
        *,
        long: Long = "split",
        limit: int | None = None,
        language: str = "en",
        prefix: str = "",
    ) -> None:
        taken = reach.max_len if limit is None or long == "whole" else limit  # `limit` is for texts that are split
        if taken < 2:
            raise UserError(
                f"{'max_len' if limit is None else 'limit'} = {taken}: must be at least 2, with the end of the source"
            )
        if reach.is_hard and taken > reach.max_len:
            raise UserError(f"limit = {limit}: the learned positions of this model end at max_len = {reach.max_len}")
        self.tokenizer = tokenizer
        self.reach = reach
        self.limit = taken
        self.is_hard = reach.is_hard
        self.long: Long = long
        self.language = language
        self.prefix = prefix
        self.n_prefix = len(tokenizer.encode(prefix)) if prefix else 0
        if taken < 2 + self.n_prefix:
            raise UserError(f"prefix = {prefix!r}: has {self.n_prefix} tokens, and the model takes {taken} at once")

    def segment(self, texts: Sequence[str]) -> tuple[list[SegmentedText], DecodingStats]:
        """Return the segments of each text, and the counts. A text that is refused raises a BadText with its index."""
        plans, stats = [], DecodingStats(limit=self.limit, max_len=self.reach.max_len)
        cut = [split_lines(checked(text, number)) for number, text in enumerate(texts)]
        ids_of = iter(self._encode([line for parts in cut for line in parts[1::2]]))
        for number, parts in enumerate(cut):
            plan = SegmentedText()
            for index, part in enumerate(parts):
                if index % 2 == 0:
                    plan.copy(part)
                    continue
                line = Segment(part, next(ids_of))
                if not line.ids or not has_words(line.text):
                    plan.copy(line.text)  # nothing can be translated, and a model would hallucinate
                elif len(line.ids) < self.limit:
                    plan.add(line)
                else:
                    stats += self._shorten(plan, line, number)
            stats += DecodingStats(
                n_beyond=int(any(len(segment.ids) >= self.reach.max_len for segment in plan.segments))
            )
            plans.append(plan)
        return plans, stats

    def _shorten(self, plan: SegmentedText, line: Segment, number: int) -> DecodingStats:
        length = len(line.ids) + 1
        if self.long == "split":
            return self._split(plan, line)
        if self.long == "extract":
            return self._extract(plan, line)
        if self.long == "truncate":
            plan.add(Segment(line.text, line.ids[: self.limit - 1]))
            return DecodingStats(n_truncated=1, n_cut_tokens=length - self.limit)
        if self.long == "whole" and not self.is_hard:
            plan.add(line)
            return DecodingStats()
        taken = f"{length:,} tokens with the end of the source, and the model takes {self.limit:,} at once"
        if self.long == "whole":
            raise BadText(number, f"{taken}: its learned positions end there. Split it: --long split")
        raise BadText(number, f"{taken}. Shorten it, or pass --long extract, truncate or, to translate it, split")

    def _split(self, plan: SegmentedText, line: Segment) -> DecodingStats:
        n_copied = 0
        for part, ids in self._parts(line.text):
            if not ids or len(ids) >= self.limit or not has_words(part):
                plan.copy(part)
                n_copied += len(ids) >= self.limit
                continue
            core = part.strip()
            before, _, after = part.partition(core)
            plan.copy(before)
            plan.add(Segment(core, ids))
            plan.copy(after)
        return DecodingStats(n_split=1, n_copied=n_copied)

    def _extract(self, plan: SegmentedText, line: Segment) -> DecodingStats:
        parts = [(part, ids) for part, ids in self._parts(line.text) if 0 < len(ids) < self.limit]
        kept = most_important([ids[self.n_prefix :] for _, ids in parts], room=self.limit - 1 - self.n_prefix)
        text = "".join(parts[number][0] for number in kept).strip()
        [ids] = self._encode([text])
        while len(ids) >= self.limit and len(kept) > 1:  # joined, they may have more tokens than the sum
            kept.pop()
            text = "".join(parts[number][0] for number in kept).strip()
            [ids] = self._encode([text])
        if kept:
            plan.add(Segment(text, ids))
        return DecodingStats(n_extracted=1, n_sentences=len(parts), n_kept=len(kept))

    def _parts(self, line: str) -> list[tuple[str, list[int]]]:
        """Divide a line into sentences, or parts of those that are too long, each with its ids."""
        parts: list[str] = []
        sentences = split_sentences(line, language=self.language)
        for sentence, length in zip(sentences, self._lengths(sentences), strict=True):
            if length < self.limit:
                parts.append(sentence)
            else:
                parts += cut_to_fit(sentence, room=self.limit - 1, lengths=self._lengths)
        return list(zip(parts, self._encode(parts), strict=True))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text after the prefix; none if the tokenizer finds no token in the text itself."""
        stripped = [text.strip() for text in texts]
        encoded = self.tokenizer.encode_batch(stripped)
        if not self.prefix:
            return encoded
        indices = [index for index, ids in enumerate(encoded) if ids]
        with_prefix = self.tokenizer.encode_batch([self.prefix + stripped[index] for index in indices])
        for index, ids in zip(indices, with_prefix, strict=True):
            encoded[index] = ids
        return encoded

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._encode(texts)]


def split_lines(text: str) -> list[str]:
    """Divide a text into gap, line, gap, line, …, gap. Gaps are the spaces with the line breaks, and at both ends.

    >>> split_lines("One.\\n\\n  Two. ")
    ['', 'One.', '\\n\\n  ', 'Two.', ' ']
    """
    core = text.strip()
    if not core:
        return [text]
    start = text.index(core)
    parts, at = [text[:start]], start
    if LINE_BREAK.search(core):
        for blanks in _BLANKS.finditer(text, start, start + len(core)):
            if LINE_BREAK.search(blanks[0]):
                parts += [text[at : blanks.start()], blanks[0]]
                at = blanks.end()
    return [*parts, text[at : start + len(core)], text[start + len(core) :]]
