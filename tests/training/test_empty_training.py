"""If no training data is left, the message says so."""

from itertools import count
from pathlib import Path

import pytest

from heedful import train
from heedful.data.splits import LARGEST_SHARE, hash_sample
from heedful.errors import UserError
from small_tasks import CASES

HELD_OUT = next(text for text in map("the dog number {}".format, count()) if hash_sample(LARGEST_SHARE)(text))


def write_files(kind: str, folder: Path, n: int) -> dict[str, Path]:
    """Write one text that is held out, n times."""
    if kind == "source":
        for name in ("source", "target"):
            (folder / name).write_text(f"{HELD_OUT}\n" * n)
        return {name: folder / name for name in ("source", "target")}
    word_by_word = "".join(f"{word} O\n" for word in HELD_OUT.split()) + "\n"
    (folder / "a.txt").write_text(
        {"text": f"{HELD_OUT}\n\n", "labels": f"{HELD_OUT}\tgood\n", "tags": word_by_word}[kind] * n
    )
    return {kind: folder / "a.txt"}


@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("translation bart", "pairs"),
        ("classification", "texts"),
        ("next_token", "documents"),
        ("spans", "documents"),
        ("tagging", "sentences"),
    ],
)
def test_holding_out_all_examples_is_rejected(name: str, unit: str, n: int, tmp_path: Path) -> None:
    case = CASES[name]
    options = [*case.overrides, *(["data.max_doubtful=1.0"] if unit == "pairs" else [])]
    with pytest.raises(UserError) as error:
        train(folder=tmp_path / "run", family=case.family, overrides=options, **write_files(case.kind, tmp_path, n))  # type: ignore[arg-type]
    valid = "--valid-source and --valid-target" if unit == "pairs" else "--valid"
    assert str(error.value) == (
        f"no {unit} are left to train on: all {n} are held out for validation, because all copies of a held-out text "
        f"are held out. Give {valid}, or more data"
    )
