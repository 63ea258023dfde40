"""Every bug in the tables of `make mutants` can be planted in the source as it is."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from mutants import MUTANTS, SOURCE, fits, planted

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_can_be_planted(mutant):
    assert fits(mutant), f"{mutant.file}: does not contain exactly once: {mutant.old!r}"
    changed = planted(mutant, (SOURCE / "heedful" / mutant.file).read_text(encoding="utf-8"))
    assert mutant.new != mutant.old
    if mutant.file.endswith(".py"):
        ast.parse(changed)
    assert mutant.tests
    assert all((TESTS / name).is_file() for name in mutant.tests)


def test_there_are_many_and_in_every_folder():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
    folders = Counter(mutant.file.split("/")[0] for mutant in MUTANTS)
    assert set(folders) == {
        "text", "nn", "models", "data", "interop", "decoding", "training", "insight", "serving", "page",
    }  # fmt: skip
    assert min(folders.values()) >= 8
