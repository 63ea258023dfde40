"""What goes into a search and what comes out of it: ids, whatever finds them. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """One sentence to translate."""

    source: Sequence[int]  # ids without marks; the engine adds the end mark
    prefix: Sequence[int] = ()  # the translation begins with these ids
    required: Sequence[Sequence[int]] = ()  # each of these runs of ids must be in it somewhere
    forbidden: Sequence[Sequence[int]] = ()  # none of these runs of ids may be in it
    continues: bool = False  # the source is a prompt, and what is written goes on from it
    place: tuple[int, int] | None = None  # which text, and which piece of it: draws depend on it; None: by the call

    def __len__(self) -> int:
        return len(self.source) + 1


@dataclass(frozen=True)
class Hypothesis:
    """One translation, as ids without marks."""

    ids: list[int]
    score: float  # sum of the natural log-probabilities of its tokens and, if it is complete, of its end mark
    rank: float  # what the search ranked it by: the score after the penalties
    complete: bool = True  # it ended by itself, not at the limit of its length
    attention: list[list[float]] | None = None  # one row for each id: how much it looked at each source id and the end
