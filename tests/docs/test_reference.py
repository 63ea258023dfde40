"""docs/reference is what `make reference` writes from the code of today."""

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECT / "scripts"))

from reference import FOLDER, pages  # noqa: E402


@pytest.mark.parametrize("name", ["commands.md", "settings.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == pages()[name], f"docs/reference/{name} is out of date; run: make reference"


def test_every_command_and_every_table_of_settings_is_there() -> None:
    commands, settings = pages()["commands.md"], pages()["settings.md"]
    assert all(f"\n## {name}\n" in commands for name in ("train", "translate", "serve", "look", "convert"))
    assert all(f"\n## [{table}]\n" in settings for table in ("data", "tokenizer", "optimiser", "run", "model"))
