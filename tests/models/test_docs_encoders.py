"""The tables of docs/models/bert.md and vit.md, and the options of docs/encode.md, say what the code says."""

import dataclasses
import re
from pathlib import Path

import pytest

from heedful.cli.main import make_app
from heedful.models.bert import BertConfig
from heedful.models.vit import VitConfig

DOCS = Path(__file__).parents[2] / "docs"


def rows(document: str) -> dict[str, list[str]]:
    cells = (re.split(r" *(?<!\\)\| *", line.strip("| \n")) for line in document.splitlines() if line.startswith("|"))
    return {row[0]: row[1:] for row in cells}


@pytest.mark.parametrize(("page", "config"), [("bert", BertConfig), ("vit", VitConfig)])
def test_every_setting_has_a_row_with_its_default_and_its_names(page: str, config: type) -> None:
    table = rows((DOCS / "models" / f"{page}.md").read_text(encoding="utf-8"))
    for field in dataclasses.fields(config):
        default, words = table[f"`{field.name}`"]
        if isinstance(field.default, str):
            assert default == f'`"{field.default}"`', field.name
        elif isinstance(field.default, int | float | tuple):
            assert default == str(field.default), field.name
        for name in getattr(field.type, "__args__", ()):
            assert not isinstance(name, str) or f'"{name}"' in f"{default} {words}", (field.name, name)
        assert words


@pytest.mark.parametrize("command", ["fill", "classify", "embed"])
def test_every_option_is_named(command: str) -> None:
    page = (DOCS / "encode.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {command}\n")[1].split("\n## ")[0]
    app = make_app()
    arguments = app[command].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
    for argument in arguments:
        words = "|".join([*argument.names, argument.names[0].strip("-").upper()])
        assert re.search(rf"^\| `({words})\b", section, flags=re.MULTILINE), argument.names
