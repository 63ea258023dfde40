"""The command line as data: every command with its options, for the documentation and for the usage line of `--help`.

>>> translate = next(row for row in command_rows() if row.name == "translate")
>>> translate.usage
'heedful translate [OPTIONS] [FILE]'
>>> [option.default for option in translate.options if option.names == ("--beam",)]
['5']
"""

import inspect
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import cyclopts

from heedful.cli.main import COMMANDS, PANELS, make_app
from heedful.cli.options import DATA, MODEL, OUTPUT, RUN

TYPES = {Path: "path", str: "text", int: "integer", float: "number", bool: ""}
GROUPS = [group.name for group in (DATA, MODEL, RUN, OUTPUT)]


@dataclass(frozen=True)
class OptionRow:
    """One option of a command, or one argument that is typed without a name."""

    names: tuple[str, ...]  # "--model" and "-m"; of an argument its name in the usage line, such as "FILE"
    is_argument: bool
    group: str  # its panel in the help of the command
    type: str  # path, text, integer or number; empty for a switch and for a choice
    choices: tuple[str, ...]
    default: str | None
    required: bool
    repeatable: bool  # takes several values
    help: str


@dataclass(frozen=True)
class CommandRow:
    """One command, with its help texts and its options in the order of its help."""

    name: str
    panel: str  # in the help of `heedful`
    summary: str
    description: str
    usage: str
    options: tuple[OptionRow, ...]


def command_rows() -> list[CommandRow]:
    """Return every command of `heedful`, in the order of `heedful --help`."""
    app = make_app()
    panels = {command: panel for panel, commands in PANELS.items() for command in commands}
    rows = []
    for name in COMMANDS:
        text = inspect.cleandoc(app[name].help).partition("\nParameters\n-----")[0]
        summary, _, description = text.partition("\n")
        options = [_option_row(argument) for argument in _arguments(app, name)]
        groups = list(dict.fromkeys([*GROUPS, *(option.group for option in options)]))
        rows.append(
            CommandRow(
                name=name,
                panel=panels[name],
                summary=summary,
                description=description.strip(),
                usage=usage(app, name),
                options=tuple(sorted(options, key=lambda option: groups.index(option.group))),
            )
        )
    return rows


def usage(app: cyclopts.App, command: str) -> str:
    """Return the usage line of a command, with its required options and the names of its arguments."""
    rows = [_option_row(argument) for argument in _arguments(app, command)]
    parts = ["heedful", command]
    parts += [f"{row.names[0]} {_placeholder(row.names[0])}" for row in rows if row.required and not row.is_argument]
    if any(not row.required and not row.is_argument for row in rows):
        parts.append("[OPTIONS]")
    for row in rows:
        if row.is_argument:
            name = row.names[0] + "..." * row.repeatable
            parts.append(name if row.required else f"[{name}]")
    return " ".join(parts)


def _arguments(app: cyclopts.App, command: str) -> Iterable[cyclopts.Argument]:
    return app[command].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)


def _option_row(argument: cyclopts.Argument) -> OptionRow:
    is_argument = argument.index is not None
    value, show = argument.field_info.default, argument.parameter.show_default
    value_type, repeatable = _value_type(argument.hint)
    groups = argument.parameter.group
    groups = (groups,) if isinstance(groups, str | cyclopts.Group) else tuple(groups or ())
    return OptionRow(
        names=(_placeholder(argument.name),) if is_argument else tuple(argument.names),
        is_argument=is_argument,
        group=next((group.name for group in groups if isinstance(group, cyclopts.Group)), ""),
        type=TYPES.get(value_type, ""),
        choices=tuple(map(str, get_args(value_type))) if get_origin(value_type) is Literal else (),
        default=show(value) if value is not argument.field_info.empty and callable(show) else None,
        required=argument.required,
        repeatable=repeatable,
        help=" ".join((argument.parameter.help or "").split()),
    )


def _placeholder(name: str) -> str:
    return name.removeprefix("--").replace("-", "_").upper()


def _value_type(hint: Any) -> tuple[Any, bool]:
    """Return the type of one value, and whether there may be several: `list[Path] | None` is (Path, True)."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) in (list, tuple):
        return get_args(hint)[0], True
    return hint, False
