"""Ranges of settings, written in their annotations: `steps: Annotated[int, AT_LEAST_1] = 10_000`.

`check_ranges` rejects values outside of them, and the reference of settings prints them.
"""

import math
import typing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from heedful.errors import UserError


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; an open end is not included.

    >>> str(Range(0, 1, open_high=True)), Range(0, 1, open_high=True).contains(1.0)
    ('in [0, 1)', False)
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def contains(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        if self.high == math.inf:
            return "positive" if self.open_low and self.low == 0 else f"at least {self.low:g}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


AT_LEAST_0 = Range(low=0)
AT_LEAST_1 = Range(low=1)
POSITIVE = Range(low=0, open_low=True)
SHARE = Range(0, 1)  # of something, from none to all
PROPER_SHARE = Range(0, 1, open_low=True, open_high=True)  # more than none, less than all
BELOW_1 = Range(0, 1, open_high=True)


@lru_cache
def ranges_of(kind: type[Any]) -> dict[str, Range]:
    """Return the ranges in the annotations of a dataclass, by field name."""
    hints = typing.get_type_hints(kind, include_extras=True)
    annotations = [(name, note) for name, hint in hints.items() for note in getattr(hint, "__metadata__", ())]
    return {name: note for name, note in annotations if isinstance(note, Range)}


def check_ranges(settings: object) -> None:
    """Raise a UserError if a field of a settings dataclass is outside its range; None is always allowed."""
    kind: Any = type(settings)
    for name, allowed in ranges_of(kind).items():
        value = getattr(settings, name)
        if value is not None and not allowed.contains(value):
            raise UserError(f"'{name}' must be {allowed}, found {value}")
