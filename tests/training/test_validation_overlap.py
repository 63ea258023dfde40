"""A run reports how many training pairs have a source that is also in validation."""

from pathlib import Path

import pytest

from heedful.training import Files
from heedful.training.data_preparation import prepare_data
from small_run import settings

PAIRS = [(f"The {a} dogs see {b} cats.", f"Die {a} Hunde sehen {b} Katzen.") for a in range(30) for b in range(10)]
NEW = [("A new one.", "Ein neuer.")]
NONE = "no training pair has a source that is also in validation"


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[Path]:
    paths = [folder / f"{name}.{code}" for code in ("en", "de")]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return paths


def notes_of(folder: Path, valid: list[tuple[str, str]] | None) -> list[str]:
    train = write(folder, "train", PAIRS)
    held = [None, None] if valid is None else write(folder, "valid", valid)
    files = Files.of([train[0], train[0]], [train[1], train[1]], *held, None)
    notes: list[str] = []
    for _ in range(2):  # the second start finds all prepared, and reads nothing that it could speak of
        prepare_data(
            folder / "run", files.corpora(), files.valid_corpus(), settings(), tokenizers=None, notify=notes.append
        )
    return [line for line in notes if "also in validation" in line]


def test_pairs_that_are_also_in_validation_are_counted_in_every_corpus(tmp_path: Path) -> None:
    [line] = notes_of(tmp_path, [*PAIRS[:7], *NEW])
    assert line.startswith("14 training pairs have a source that is also in validation")


@pytest.mark.parametrize("valid", [NEW, None])
def test_no_overlap_is_reported(valid: list[tuple[str, str]] | None, tmp_path: Path) -> None:
    assert notes_of(tmp_path, valid) == [NONE]
