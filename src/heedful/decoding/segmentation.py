"""A line of text into sentences, and a sentence into what fits. Joined again, the parts are the line, blanks and all.

Where a sentence ends is sentencex's to say (MIT, no dependencies, about 300 languages). It keeps every character of
text without line breaks, and this is checked here all the same: text that came back changed would stay whole.

The most important parts of a text that is too long: those that have most in common with the whole.

Each part is a vector of its tokens, weighted by TF-IDF: a token counts the more often it stands in the part, and the
rarer it is in the others. The part nearest to the sum of all is the most central (Radev et al. 2004). Tokens, not
words, so that it works for every language that the model reads.

Texts into what the model takes at once, and its answers back into texts. Nothing is ever cut in silence.

    text ── lines ──┬── within the model's reach: whole
                    └── beyond it ── split: sentences, in parts where one is still too long
                                     truncate: its beginning · extract: its most important sentences
                                     error: refused · whole: as it is, where positions have no last one

Blanks and line breaks between the parts never reach the model; they stand in the result where they stood in the text.
"""

import dataclasses
import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import sentencex

from heedful.decoding.input_text import LINE_BREAK, BadText, checked
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer

# A line is looked at in windows: sentencex compares each mark with each quotation, which takes time by the square.
WINDOW = 4096

# Where a sentence that is too long is cut first: after a mark that ends a clause. The Latin ones only before a blank:
# 3,5 and 10:30 are one word.
_CLAUSE = re.compile(r"(?:[，、；：。！？،؛؟।…—–]+|[,;:.!?]+(?=\s))\s*")
_SPACES = re.compile(r"\s+")
_ODD_BLANK = re.compile(r"[^\S ]")
_MOST_MARKS = 32  # on one letter; more are not kept together

Lengths = Callable[[Sequence[str]], list[int]]  # how many tokens each of the texts has


def split_sentences(line: str, *, language: str = "en") -> list[str]:
    """The sentences of a text without line breaks, each with the blanks that follow it."""
    sentences: list[str] = []
    start = 0
    while start < len(line):
        window = line[start : start + WINDOW]
        found = _segment(window, language)
        if start + len(window) < len(line):
            if len(found) > 1:
                found.pop()  # it may go on beyond the window
            else:
                found = [_up_to_a_gap(window)]
        sentences += found
        start += sum(map(len, found))
    return sentences


def _up_to_a_gap(window: str) -> str:
    """The window up to its last clause mark, else its last blank, so that it ends inside no word that has an end."""
    for mark in (_CLAUSE, _SPACES):
        ends = [match.end() for match in mark.finditer(window)]
        if ends:
            return window[: ends[-1]]
    return window[: _with_its_marks(window, 0, len(window) - 1)]  # what stands last may have a mark in the next window


def _segment(window: str, language: str) -> list[str]:
    # It takes each blank before a full stop for one byte, and panics at U+00A0 (1.0.32): so it is shown plain spaces.
    plain = _ODD_BLANK.sub(" ", window)
    try:
        found = sentencex.segment(language, plain)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's panics are no Exception, and have no name to import
            raise
        return [window]
    if "".join(found) != plain:
        return [window]
    ends = list(itertools.accumulate(map(len, found)))
    return [window[start:end] for start, end in itertools.pairwise([0, *ends]) if start < end]


def cut_to_fit(text: str, *, room: int, lengths: Lengths) -> list[str]:
    """`text` in parts of at most `room` tokens: cut at clauses, else between words, else between characters.

    A single character of more than `room` tokens is left as it is.
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
    """Neighbours joined into as few groups as can be, and of like lengths, so that no word is left alone."""
    measured = lengths(atoms)
    fewest = len(_fill(atoms, measured, room))
    low, high = 1, room  # the smallest groups, of which there are just as many
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_fill(atoms, measured, middle)) <= fewest else (middle + 1, high)
    groups = _fill(atoms, measured, high)
    # Together they may have more tokens than each alone: rare, and then the group is halved.
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
        start, size = end, 2 * size  # a token may be one character or twenty: feel the way
    return parts


def _with_its_marks(text: str, start: int, end: int) -> int:
    """The same end, or an earlier one where it would part a letter from its marks, or the halves of an emoji."""
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
    """The cosine between each part and the sum of all parts; 0 for a part of nothing but what all have."""
    counts = [Counter(ids) for ids in parts]
    n_parts_with = Counter(token for count in counts for token in count)
    # 1 + n: with two parts, what stands in both must still count for something.
    weights = {token: math.log((1 + len(parts)) / n) for token, n in n_parts_with.items()}
    vectors = [_unit({token: n * weights[token] for token, n in count.items()}) for count in counts]
    whole: Vector = {}
    for vector in vectors:
        for token, value in vector.items():
            whole[token] = whole.get(token, 0.0) + value
    whole = _unit(whole)
    return [sum(value * whole[token] for token, value in vector.items()) for vector in vectors]


def most_important(parts: Sequence[Sequence[int]], *, room: int) -> list[int]:
    """Which parts to keep, in their order: the most central first, as long as their tokens fit into `room`."""
    scores = centrality(parts)
    kept: list[int] = []
    for number in sorted(range(len(parts)), key=lambda number: -scores[number]):  # of equals the first
        if len(parts[number]) <= room:
            kept.append(number)
            room -= len(parts[number])
    return sorted(kept)


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {token: value / length for token, value in vector.items()} if length else vector


Long = Literal["split", "truncate", "extract", "error", "whole"]

_BLANKS = re.compile(r"\s+")
# Scripts that write no space between sentences: Chinese and Japanese, with their marks and full-width forms.
UNSPACED = re.compile("[\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60]")
_BRAILLE = re.compile("[\u2801-\u28ff]")  # letters, which Unicode counts among the signs


# In ASCII: where no space is written between words, a sentence may follow at once.
_ADDRESS = re.compile(
    r"[(<\[\"']*(?:(?:[A-Za-z][A-Za-z0-9+.-]*://|www\.|mailto:)[!-~]+|[!-?A-~]+@[!-?A-~]+\.[!-?A-~]+)"
)


def has_words(text: str) -> bool:
    """Whether there is anything to translate: letters or digits, not signs, emoji and addresses alone."""
    if not (any(map(str.isalnum, text)) or _BRAILLE.search(text)):
        return False
    if not any(mark in text for mark in ("://", "@", "www.")):
        return True
    words = (word for word in text.split() if any(map(str.isalnum, word)) or _BRAILLE.search(word))
    return not all(map(_ADDRESS.fullmatch, words))


@dataclass(frozen=True)
class Segment:
    """What the model gets at once."""

    text: str
    ids: list[int]


@dataclass
class SegmentedText:
    """A text as pieces, and what stands around them: gaps[i] before piece i, the last gap after all."""

    pieces: list[Segment] = field(default_factory=list)
    gaps: list[str] = field(default_factory=lambda: [""])

    def copy(self, text: str) -> None:
        """Goes into the result as it is."""
        self.gaps[-1] += text

    def translate(self, piece: Segment) -> None:
        self.pieces.append(piece)
        self.gaps.append("")

    def join(self, translations: Sequence[str]) -> str:
        """The translations of the pieces with the gaps between them; of a text without any piece, what was copied."""
        if not self.pieces:
            return "" if self.gaps[0].isspace() else self.gaps[0]
        parts = [self.gaps[0]]
        for number, translation in enumerate(translations):
            if number:
                parts.append(self._gap(number, translations))
            parts.append(translation)
        return "".join([*parts, self.gaps[-1]])

    def _gap(self, number: int, translations: Sequence[str]) -> str:
        """As in the source, unless source and translation differ in whether a space stands between sentences."""
        gap = self.gaps[number]
        if gap not in ("", " "):
            return gap
        source = _is_unspaced(self.pieces[number - 1].text, self.pieces[number].text)
        target = _is_unspaced(translations[number - 1], translations[number])
        return gap if source is None or target is None or source == target else "" if target else " "


def _is_unspaced(left: str, right: str) -> bool | None:
    """Whether the characters around a gap are of a script without spaces; None where they are of two minds."""
    sides = {bool(UNSPACED.match(character)) for character in (left[-1:], right[:1]) if character}
    return sides.pop() if len(sides) == 1 else None


class OutputNoun(NamedTuple):
    """What is made of the texts, in the words of whoever asked for it."""

    one: str
    several: str
    done: str
    option: str  # that allows more tokens

    def were(self, n: int) -> str:
        return f"{n:,} {self.one} was" if n == 1 else f"{n:,} {self.several} were"


TRANSLATIONS = OutputNoun("translation", "translations", "translated", "max_len")
SUMMARIES = OutputNoun("summary", "summaries", "summarised", "max_len")


@dataclass(frozen=True)
class DecodingStats:
    """What became of texts beyond the model's reach, and of translations beyond theirs."""

    limit: int = 0
    n_split: int = 0
    n_truncated: int = 0
    n_cut_tokens: int = 0
    n_extracted: int = 0
    n_sentences: int = 0  # of the extracted lines
    n_kept: int = 0
    n_beyond: int = 0  # texts of which a piece has more source tokens than the model was made for
    n_copied: int = 0  # characters that alone have more tokens than the model takes
    max_len: int = 0  # tokens that the model was made to write
    n_cut: int = 0  # texts of which a translation was ended at its limit
    first_cut: int | None = None  # the number of the first of them, from 0
    n_far: int = 0  # texts of which a translation has more than `max_len` tokens
    first_far: int | None = None

    def __add__(self, other: "DecodingStats") -> "DecodingStats":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        largest = {name: max(getattr(self, name), getattr(other, name)) for name in ("limit", "max_len")}
        return DecodingStats(
            **sums,
            **largest,
            first_cut=_first(self.first_cut, other.first_cut),
            first_far=_first(self.first_far, other.first_far),
        )

    def warnings(self, *, of: str = "text", written: OutputNoun = TRANSLATIONS) -> list[str]:
        """What a user must know: whatever of the input is not in the output, or was translated at a risk.

        `of` is what the numbers count: a call has texts, a file has lines.
        """
        words = self._of_sources(written)
        if self.first_cut is not None:
            words.append(
                f"{written.were(self.n_cut)} cut off at the longest length allowed, without an end: "
                f"{_which(of, self.first_cut, self.n_cut)}. More tokens are allowed by {written.option}, as far as the "
                f"model's positions go; shorter texts have shorter {written.several}"
            )
        if self.first_far is not None:
            words.append(
                f"{written.were(self.n_far)} longer than the {self.max_len:,} tokens that the model was made for: "
                f"{_which(of, self.first_far, self.n_far)}. Positions beyond were never learned, and the {written.one} "
                "may be poor there"
            )
        return words

    def _of_sources(self, written: OutputNoun) -> list[str]:
        words = []
        if self.n_truncated:
            words.append(
                f"{_lines(self.n_truncated)} cut to the {self.limit:,} tokens that the model takes; "
                f"{self.n_cut_tokens:,} tokens were not {written.done}"
            )
        if self.n_extracted:
            words.append(
                f"{_lines(self.n_extracted)} reduced to the most important sentences, "
                f"{self.n_kept:,} of {self.n_sentences:,}, so that they fit into {self.limit:,} tokens"
            )
        if self.n_beyond:
            words.append(
                f"{_lines(self.n_beyond)} {written.done} whole beyond {self.max_len:,} tokens, the length that the "
                f"model was made for: positions beyond it were never learned, and the {written.one} may be poor there"
            )
        if self.n_copied:
            words.append(
                f"{self.n_copied:,} characters copied, not {written.done}: each alone has more tokens than the "
                f"{self.limit:,} that the model takes"
            )
        return words


_COUNTS = tuple(one.name for one in dataclasses.fields(DecodingStats) if one.name.startswith("n_"))


def _first(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)


def _lines(n: int) -> str:
    return f"{n:,} line was" if n == 1 else f"{n:,} lines were"


def _which(of: str, first: int, n: int) -> str:
    return f"that of {of} {first + 1:,}" if n == 1 else f"the first is that of {of} {first + 1:,}"


class Segmenter:
    """Makes the plans. The limit counts the source tokens of a line and the end mark after them.

    `prefix` goes to the model before everything, as T5 is told what to do: "summarize: ". It is never split off.
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
        taken = reach.max_len if limit is None or long == "whole" else limit  # a limit is for what is split
        if taken < 2:
            raise UserError(
                f"{'max_len' if limit is None else 'limit'} = {taken}: must be at least 2, the end mark counted"
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

    def plan(self, texts: Sequence[str]) -> tuple[list[SegmentedText], DecodingStats]:
        """A plan for each text; a text that is refused is a BadText with its number."""
        plans, tally = [], DecodingStats(limit=self.limit, max_len=self.reach.max_len)
        cut = [split_lines(checked(text, number)) for number, text in enumerate(texts)]
        ids_of = iter(self._encode([line for parts in cut for line in parts[1::2]]))
        for number, parts in enumerate(cut):
            plan = SegmentedText()
            for place, part in enumerate(parts):
                if place % 2 == 0:
                    plan.copy(part)
                    continue
                line = Segment(part, next(ids_of))
                if not line.ids or not has_words(line.text):
                    plan.copy(line.text)  # nothing in it could be translated, and a model would make something up
                elif len(line.ids) < self.limit:
                    plan.translate(line)
                else:
                    tally += self._shorten(plan, line, number)
            tally += DecodingStats(n_beyond=int(any(len(piece.ids) >= self.reach.max_len for piece in plan.pieces)))
            plans.append(plan)
        return plans, tally

    def _shorten(self, plan: SegmentedText, line: Segment, number: int) -> DecodingStats:
        length = len(line.ids) + 1
        if self.long == "split":
            return self._split(plan, line)
        if self.long == "extract":
            return self._extract(plan, line)
        if self.long == "truncate":
            plan.translate(Segment(line.text, line.ids[: self.limit - 1]))
            return DecodingStats(n_truncated=1, n_cut_tokens=length - self.limit)
        if self.long == "whole" and not self.is_hard:
            plan.translate(line)
            return DecodingStats()
        taken = f"{length:,} tokens with the end mark, and the model takes {self.limit:,} at once"
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
            plan.translate(Segment(core, ids))
            plan.copy(after)
        return DecodingStats(n_split=1, n_copied=n_copied)

    def _extract(self, plan: SegmentedText, line: Segment) -> DecodingStats:
        parts = [(part, ids) for part, ids in self._parts(line.text) if 0 < len(ids) < self.limit]
        kept = most_important([ids[self.n_prefix :] for _, ids in parts], room=self.limit - 1 - self.n_prefix)
        text = "".join(parts[number][0] for number in kept).strip()
        [ids] = self._encode([text])
        while len(ids) >= self.limit and len(kept) > 1:  # joined, they may have more tokens than each alone
            kept.pop()
            text = "".join(parts[number][0] for number in kept).strip()
            [ids] = self._encode([text])
        if kept:
            plan.translate(Segment(text, ids))
        return DecodingStats(n_extracted=1, n_sentences=len(parts), n_kept=len(kept))

    def _parts(self, line: str) -> list[tuple[str, list[int]]]:
        """Sentences, and parts of those that are too long, each with its ids; joined they are the line."""

        parts: list[str] = []
        sentences = split_sentences(line, language=self.language)
        for sentence, length in zip(sentences, self._lengths(sentences), strict=True):
            if length < self.limit:
                parts.append(sentence)
            else:
                parts += cut_to_fit(sentence, room=self.limit - 1, lengths=self._lengths)
        return list(zip(parts, self._encode(parts), strict=True))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, after the prefix; none of a text in which the tokenizer sees nothing."""
        stripped = [text.strip() for text in texts]
        found = self.tokenizer.encode_batch(stripped)
        if not self.prefix:
            return found
        wanted = [number for number, ids in enumerate(found) if ids]
        with_prefix = self.tokenizer.encode_batch([self.prefix + stripped[number] for number in wanted])
        for number, ids in zip(wanted, with_prefix, strict=True):
            found[number] = ids
        return found

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._encode(texts)]


def split_lines(text: str) -> list[str]:
    """Gap, line, gap, line, …, gap: the gaps are blanks with the line breaks, and those at both ends of the text."""
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
