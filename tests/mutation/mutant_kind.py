"""What a planted bug is."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str  # below src/heedful
    old: str  # stands exactly once in the file
    new: str
    tests: tuple[str, ...]  # below tests, the likeliest to catch it first
