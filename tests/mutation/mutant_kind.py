"""The description of a planted bug."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str  # below src/heedful
    old: str  # the text to replace; occurs exactly once in the file
    new: str
    tests: tuple[str, ...]  # test files below tests/; the first is the likeliest to fail
