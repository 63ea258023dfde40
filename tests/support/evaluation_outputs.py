"""Made-up references and outputs, the same on every machine: words of a small language, some of them got wrong."""

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
    random = Random(seed)
    return [" ".join(random.choices(WORDS, k=random.randint(1, 20))) for _ in range(n)]


def spoiled(lines: list[str], share: float, *, seed: int = 2) -> list[str]:
    """The same with this share of the words replaced, and now and then one left out."""
    random = Random(seed)
    result = []
    for line in lines:
        words = [random.choice(WORDS) if random.random() < share else word for word in line.split()]
        if random.random() < share:
            del words[-1]
        result.append(" ".join(words))
    return result
