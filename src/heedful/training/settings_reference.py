"""The reference of settings: every setting with type, default, range, meaning, and the tasks or families that use it.

The rows are read from the dataclasses of the settings, so they cannot differ from what a run accepts.
"""

import ast
import dataclasses
import inspect
import io
import textwrap
import tokenize
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from heedful.models.model_io import FAMILIES
from heedful.training.setting_ranges import ranges_of
from heedful.training.settings import Settings
from heedful.training.tasks.registry import TASKS, tasks_that_use

TOML_TYPES = {int: "integer", float: "float", str: "string", bool: "boolean"}


@dataclass(frozen=True)
class SettingRow:
    """One setting, in words."""

    name: str  # as --set takes it: "run.steps"
    type: str  # in TOML's words
    default: str  # as --set takes it; "" if there is none
    range: str  # "at least 1"; "" if every value of the type is allowed
    used_by: tuple[str, ...]  # tasks, or for [model] families; () if all of them use it
    text: str  # what it does


def setting_rows() -> list[SettingRow]:
    """Return all settings but those of `[model]`, in the order of settings.toml.

    >>> [row] = [row for row in setting_rows() if row.name == "run.steps"]
    >>> row.type, row.default, row.range, row.text
    ('integer', '10000', 'at least 1', 'updates in all')
    """
    rows: list[SettingRow] = []
    for table, kind in typing.get_type_hints(Settings).items():
        if dataclasses.is_dataclass(kind):
            rows += _rows_of(kind, f"{table}.")
        elif table != "model":
            rows += [row for row in _rows_of(Settings, "") if row.name == table]
    return rows


def model_setting_rows() -> list[SettingRow]:
    """Return the settings of `[model]`, with the families that have each; a default that differs gets its own row.

    >>> sorted(row.used_by for row in model_setting_rows() if row.name == "model.patch_size")
    [('vit',)]
    """
    families_of: dict[SettingRow, list[str]] = {}
    for family, (kind, _) in FAMILIES.items():
        for row in _rows_of(kind, "model."):
            families_of.setdefault(dataclasses.replace(row, used_by=()), []).append(family)
    rows = [dataclasses.replace(row, used_by=tuple(families)) for row, families in families_of.items()]
    return [row if len(row.used_by) < len(FAMILIES) else dataclasses.replace(row, used_by=()) for row in rows]


def _rows_of(kind: Any, prefix: str) -> Iterator[SettingRow]:
    """Yield the settings of a dataclass."""
    hints, ranges, comments = typing.get_type_hints(kind), ranges_of(kind), _comments_of(kind)
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        name = f"{prefix}{field.name}"
        users = tuple(tasks_that_use(name))
        yield SettingRow(
            name=name,
            type=_type_name(hints[field.name]),
            default=_default_of(field),
            range=str(ranges.get(field.name, "")),
            used_by=() if len(users) == len(TASKS) else users,
            text=comments.get(field.name, ""),
        )


def _comments_of(kind: Any) -> dict[str, str]:
    """Return the comments behind the fields of a dataclass, which describe them."""
    source = textwrap.dedent(inspect.getsource(kind))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    fields = [node for node in definition.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return {
        node.target.id: comments[node.end_lineno]
        for node in fields
        if isinstance(node.target, ast.Name) and node.end_lineno in comments
    }


def _type_name(hint: Any) -> str:
    """Return a type in TOML's words: "integer", "one of: ddp, fsdp", "array of strings"."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of: {', '.join(map(str, arguments))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(choice) for choice in arguments if choice is not types.NoneType)
    if origin in (tuple, list):
        return f"array of {_type_name(arguments[0])}s"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "table"
    return TOML_TYPES.get(hint, "value")


def _default_of(field: "dataclasses.Field[Any]") -> str:
    """Return a default as it is typed; "" for None, tables, and fields that must be given."""
    value = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    if value is None or value is dataclasses.MISSING or isinstance(value, dict) or dataclasses.is_dataclass(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
