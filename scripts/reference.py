"""Write docs/reference: every command with its options, and every setting, from the code of the package.

    python scripts/reference.py            # or: make reference

The rows come from `heedful.cli.reference` and `heedful.training.settings_reference`. A test compares both.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from heedful.cli.reference import CommandRow, OptionRow, command_rows
from heedful.training.settings_reference import SettingRow, model_setting_rows, setting_rows

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by `make reference` from the code. Do not edit. -->"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the name and the text of each page."""
    return {"commands.md": commands_page(command_rows()), "settings.md": settings_page()}


def commands_page(commands: Iterable[CommandRow]) -> str:
    """Render all commands, each with its usage line and a table of its options."""
    rows = list(commands)
    lines = [NOTE, "", "# Commands", ""]
    lines += ["`heedful COMMAND --help` prints the same in a terminal. `-` as a FILE is standard input.", ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| [`{row.name}`](#{row.name}) | {cell(row.summary)} |" for row in rows]
    for row in rows:
        lines += ["", f"## {row.name}", "", cell(row.summary), *(["", row.description] if row.description else [])]
        lines += ["", "```", row.usage, "```", "", "| option | value | default | meaning |", "|---|---|---|---|"]
        lines += [option_line(option) for option in row.options]
    return "\n".join(lines) + "\n"


def option_line(option: OptionRow) -> str:
    """Render one row of a table of options."""
    names = ", ".join(f"`{name}`" for name in option.names)
    value = " \\| ".join(option.choices) or option.type
    value += " …" * (option.repeatable and bool(value))
    default = "required" if option.required else f"`{option.default}`" if option.default else ""
    return f"| {names} | {value} | {default} | {cell(option.help)} |"


def settings_page() -> str:
    """Render all settings, one table for each table of settings.toml, then the settings of [model] by family."""
    lines = [NOTE, "", "# Settings", ""]
    lines += ["Each setting is a key of `settings.toml` and of recipes, and a value of `--set`, for example", ""]
    lines += ["```", "heedful train RUN --set optimiser.lr=0.001 data.max_len=128", "```", ""]
    lines += ["An unknown key is an error that names the nearest key. An empty column *used by* means all tasks."]
    for table, rows in groupby(setting_rows(), key=lambda row: row.name.rpartition(".")[0]):
        lines += ["", f"## [{table}]" if table else "## Without a table", "", *settings_table(rows, "used by")]
    lines += ["", "## [model]", "", "The settings of a model depend on its family (`--family`).", ""]
    lines += settings_table(model_setting_rows(), "families")
    return "\n".join(lines) + "\n"


def settings_table(rows: Iterable[SettingRow], users: str) -> Iterator[str]:
    """Render a table of settings."""
    yield f"| setting | type | default | range | {users} | meaning |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        default = f"`{row.default}`" if row.default else ""
        used_by = ", ".join(row.used_by)
        yield f"| `{row.name}` | {cell(row.type)} | {default} | {cell(row.range)} | {used_by} | {cell(row.text)} |"


def cell(text: str) -> str:
    """Escape what would end a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
