"""The commands in README.md, docs/ and benchmarks/ name scripts, recipes, settings and options that exist."""

import re
from pathlib import Path

import pytest

from heedful.training import model_setting_rows, setting_rows

PROJECT = Path(__file__).parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "benchmarks/**/*.py", "benchmarks/**/*.toml", "src/heedful/training/recipes/*.toml")
# The changelog and the decisions also name what is gone.
PAGES = sorted(
    path for pattern in PATTERNS for path in PROJECT.glob(pattern) if path.name not in ("CHANGELOG.md", "decisions.md")
)
TABLES = ("data", "tokenizer", "model", "objective", "auxiliary", "noise", "loss", "optimiser", "schedule", "run")
SETTINGS = {row.name for row in (*setting_rows(), *model_setting_rows())}


def stored_options() -> dict[str, set[str]]:
    """Read the options of each command from the list that tests/contract/test_cli.py keeps."""
    options: dict[str, set[str]] = {}
    command = ""
    for line in (PROJECT / "tests" / "contract" / "commands.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            options[command] |= {*line.split()}
        else:
            command = line
            options[command] = {"--help", "-h"}
    return options


OPTIONS = stored_options()


def page_id(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_scripts_and_recipes_exist(page: Path) -> None:
    names = re.findall(r"\b(?:benchmarks|scripts|tests)/[\w/-]+\.(?:py|sh|toml)\b", page.read_text(encoding="utf-8"))
    assert [name for name in names if not (PROJECT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_settings_exist(page: Path) -> None:
    names = re.findall(rf"(?<![\w./-])(?:{'|'.join(TABLES)})\.[a-z_0-9]+(?==)", page.read_text(encoding="utf-8"))
    assert [name for name in names if name not in SETTINGS] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.suffix in (".md", ".toml")], ids=page_id)
def test_commands_have_their_options(page: Path) -> None:
    text = re.sub(r"\\\n#?", " ", page.read_text(encoding="utf-8"))
    unknown = []
    for command, args in re.findall(r"(?:^#? *|`|-m )heedful ([a-z]+)((?: [^`|\n]*)?)", text, re.MULTILINE):
        if command in OPTIONS:
            names = re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", args.partition("  #")[0])
            unknown += [f"{command} {name}" for name in names if name not in OPTIONS[command]]
    assert unknown == []
