"""docs/architecture.md has the folders as they are, in the order in which they may import."""

import re
from pathlib import Path

import pytest

from heedful_sources import FOLDERS, INSIDE

PROJECT = Path(__file__).parents[2]


def test_the_map_shows_the_folders_in_order_and_what_is_only_planned():
    document = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \| *(\S.*?) *\|$", document, flags=re.MULTILINE)
    assert [name for name, _ in rows] == list(FOLDERS)
    for name, note in rows:
        exists = (PROJECT / "src/heedful" / name).is_dir()
        assert exists == (note != "planned"), f"{name}: {'exists' if exists else 'is only planned'}"


@pytest.mark.parametrize("folder", INSIDE)
def test_the_map_shows_the_folders_inside_a_folder_in_order(folder):
    document = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| `{folder}/(\w+)` \| (.*) \|$", document, flags=re.MULTILINE)
    assert [name for name, _ in rows] == list(INSIDE[folder])


def test_the_two_line_change_of_the_map_fits_the_code():
    readme = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
    (change,) = re.findall(r"```diff\n(.*?)```", readme, flags=re.DOTALL)
    files = re.findall(r"--- (\S+)\n(.*?)(?=---|\Z)", change, flags=re.DOTALL)
    assert len(files) == 2
    for path, lines in files:
        code = (PROJECT / path).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines.splitlines() if line[0] in " -" and line[1:] not in code] == []
