"""Which part of a text a look shows: a text is cut exactly as where it is translated, and one piece is looked at.

A Translator gives the model line by line, and what is beyond its reach in sentences (decoding/writing/long_text.py). A
look at the whole text at once would be one at another translation than the reader has before him. Each piece, given by
itself, is again one piece, with the same ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.decoding.writing.long_text import Piece, Plan, Planner, cut_lines
from heedful.decoding.writing.texts import LINE_BREAK, BadText
from heedful.errors import UserError, warn
from heedful.insight.subject import Subject, reach_of


@dataclass(frozen=True)
class Pieces:
    """A text that the model gets in several pieces, and which of them is shown."""

    number: int  # from 0
    sources: tuple[str, ...]
    targets: tuple[str, ...] | None  # of a given translation of the whole text


@dataclass(frozen=True)
class Part:
    """What is looked at."""

    piece: Piece
    target: str | None
    pieces: Pieces | None  # None of a text in one piece


def chosen_part(subject: Subject, text: str, target: str | None, number: int | None) -> Part:
    """Piece `number` of a text, by default the first, and what of a given translation belongs to it."""
    plan = _plan(subject, text)
    n = len(plan.pieces)
    place = 0 if number is None else number
    if not 0 <= place < n:
        raise UserError(f"piece: {place} would be piece number {place + 1}, and the model gets this text in {n}")
    if n == 1:
        return Part(plan.pieces[0], target, None)
    targets = None if target is None else _lines_of(target, plan)
    if targets is not None:
        target = targets[place]
    elif target is not None and number is None:
        raise UserError(
            f"target: the model gets this text in {n} pieces, and nothing says which words of the target belong to "
            "the first; name the piece that it is the translation of, or look at that piece alone"
        )
    return Part(plan.pieces[place], target, Pieces(place, tuple(piece.text for piece in plan.pieces), targets))


def _plan(subject: Subject, text: str) -> Plan:
    planner = subject.planner or Planner(subject.tokenizers.source, reach_of(subject.model))
    try:
        [plan], tally = planner.plan([text])
    except BadText as error:
        raise UserError(f"look: {error.what}") from None
    if not plan.pieces:
        what = "has no word to translate, and is copied as it is" if text.strip() else "is empty"
        raise UserError(f"look: the text {what}; give a sentence to translate")
    for words in tally.warnings():
        warn(words)
    return plan


def _lines_of(target: str, plan: Plan) -> tuple[str, ...] | None:
    """Line by line, where each piece is a line and the target has as many; None where nothing tells."""
    lines: Sequence[str] = cut_lines(target)[1::2]
    is_each_a_line = all(LINE_BREAK.search(gap) for gap in plan.gaps[1:-1])
    return tuple(lines) if is_each_a_line and len(lines) == len(plan.pieces) else None
