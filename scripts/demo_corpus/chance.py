"""Random choices that are the same on every machine and in every version of Python."""

import random
from collections.abc import Sequence
from typing import TypeVar

from scripts.demo_corpus.meaning import Subject

T = TypeVar("T")


class Draw:
    """A stream of random choices.

    It uses only `random.Random.random`, whose numbers Python guarantees; those of `choice` and `shuffle` may change.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def choose(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def choose_subject(self, *people: Subject) -> Subject:
        return self.choose(people)

    def number(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keys = [self._random() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]
