"""The table of docs/models/gpt.md says what the code says."""

import dataclasses
import re
from pathlib import Path

from heedful.models.gpt import GptConfig

DOCUMENT = (Path(__file__).parents[2] / "docs/models/gpt.md").read_text(encoding="utf-8")
ROWS = {row[0]: row[1:] for row in (re.split(r" *\| *", line.strip("| \n")) for line in DOCUMENT.splitlines()) if row}


def test_every_setting_has_a_row_with_its_default_and_its_names():
    for field in dataclasses.fields(GptConfig):
        default, words = ROWS[f"`{field.name}`"]
        if isinstance(field.default, str):
            assert default == f'`"{field.default}"`', field.name
        elif isinstance(field.default, int | float):
            assert default == str(field.default), field.name
        for name in getattr(field.type, "__args__", ()):
            assert not isinstance(name, str) or f'"{name}"' in f"{default} {words}", (field.name, name)
        assert words
