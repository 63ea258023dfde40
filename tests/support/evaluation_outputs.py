"""Synthetic references and outputs with errors, equal on every machine."""

from random import Random

WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "man",
    "woman",
    "runs",
    "reads",
    "in",
    "on",
    "street",
    "old",
    ",",
    ".",
    "Berlin",
    "über",
]


def references(n: int, *, seed: int = 1) -> list[str]:
    """Return n random sentences of 1 to 20 words."""
    random = Random(seed)
    return [" ".join(random.choices(WORDS, k=random.randint(1, 20))) for _ in range(n)]


def spoiled(lines: list[str], share: float, *, seed: int = 2) -> list[str]:
    """Replace a share of the words, and drop the last word of a share of the lines."""
    random = Random(seed)
    result = []
    for line in lines:
        words = [random.choice(WORDS) if random.random() < share else word for word in line.split()]
        if random.random() < share:
            del words[-1]
        result.append(" ".join(words))
    return result
