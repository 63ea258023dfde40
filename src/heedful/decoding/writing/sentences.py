"""A line of text into sentences, and a sentence into what fits. Joined again, the parts are the line, blanks and all.

Where a sentence ends is sentencex's to say (MIT, no dependencies, about 300 languages). It keeps every character of
text without line breaks, and this is checked here all the same: text that came back changed would stay whole.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence

import sentencex

# A line is looked at in windows: sentencex compares each mark with each quotation, which takes time by the square.
WINDOW = 4096

# Where a sentence that is too long is cut first: after a mark that ends a clause. The Latin ones only before a blank:
# 3,5 and 10:30 are one word.
_CLAUSE = re.compile(r"(?:[，、；：。！？،؛؟।…—–]+|[,;:.!?]+(?=\s))\s*")
_BLANKS = re.compile(r"\s+")
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
    for mark in (_CLAUSE, _BLANKS):
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
    return _pack(_after(_BLANKS, text), room, lengths)


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
