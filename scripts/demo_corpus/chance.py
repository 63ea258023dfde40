"""Where the demo's choices come from: the same numbers on every machine and in every version of Python."""

import random
from collections.abc import Sequence
from typing import TypeVar

from scripts.demo_corpus.meaning import Subject

T = TypeVar("T")


class Draw:
    """A stream of choices. Only `random()` is used: Python promises its numbers, and not those of `choice`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def one(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def who(self, *people: Subject) -> Subject:
        return self.one(people)

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keys = [self._random() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]
