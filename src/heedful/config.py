"""Settings: frozen dataclasses on one side, TOML and JSON on the other.

The dataclass is the truth: its fields are the allowed keys, its annotations the allowed types, its defaults the only
defaults. Whatever does not fit is refused with the nearest name, so that no setting is ever ignored in silence.
"""

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import tomli_w

from heedful.errors import UserError, nearest

Values = Mapping[str, Any]
T = TypeVar("T")


def from_values(kind: type[T], values: Values, *, where: str, table: str = "") -> T:
    """Build the dataclass `kind` from plain values; `where` names the file or option for the error message."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise _unknown(key, list(fields), where=where, table=table)
    given = {key: _convert(value, hints[key], where=where, key=_join(table, key)) for key, value in values.items()}
    for name, field in fields.items():
        if name not in given and _is_required(field):
            raise UserError(f"{where}: '{_join(table, name)}' is missing and has no default")
    try:
        return kind(**given)
    except UserError as error:  # raised by __post_init__, which knows the fields but not the file
        raise UserError(f"{where}: {error}") from None


def to_values(settings: Any) -> dict[str, Any]:
    """The plain values of a dataclass, None left out: TOML has no null, and absent means default."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None:
            continue
        values[field.name] = to_values(value) if dataclasses.is_dataclass(value) else _plain(value)
    return values


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file; a syntax error names the file and the line."""
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable TOML file: {error}") from None


def read_json(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file; duplicate keys are refused, since readers disagree on which one counts."""
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_duplicates)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(values).__name__}")
    return values


def to_toml(settings: Any) -> str:
    return tomli_w.dumps(to_values(settings))


def with_overrides(values: Values, overrides: Iterable[str]) -> dict[str, Any]:
    """Apply `a.b=c` strings on top of plain values; c is read as TOML, and as a string where it is not TOML."""
    result = _copy(values)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {override}: expected key=value, for example --set optimiser.lr=0.001")
        *tables, last = key.strip().split(".")
        inner = result
        for name in tables:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {override}: '{name}' is a value, not a table")
        inner[last] = _read_value(text.strip())
    return result


def _read_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copy(values: Values) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _convert(value: Any, hint: Any, *, where: str, key: str) -> Any:
    """`value` as the annotation `hint` wants it, or a UserError that names the key and both types."""
    origin, arguments = get_origin(hint), get_args(hint)
    wrong = UserError(f"{where}: '{key}' must be {_say(hint)}, found {value!r} ({type(value).__name__})")
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: '{key}' must be a table, found {value!r}")
        return from_values(typing.cast("type[Any]", hint), value, where=where, table=key)
    if origin is Literal:
        if value not in arguments:
            raise UserError(
                f"{where}: '{key}' is {value!r}{nearest(str(value), map(str, arguments))}\n"
                f"allowed: {', '.join(map(str, arguments))}"
            )
        return value
    if origin in (Union, types.UnionType):
        for choice in arguments:
            try:
                return _convert(value, choice, where=where, key=key)
            except UserError:
                continue
        raise wrong
    if origin in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise wrong
        return origin(_convert(item, arguments[0], where=where, key=key) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise wrong
        return {name: _convert(item, arguments[1], where=where, key=f"{key}.{name}") for name, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is type(None):
        if value is not None:
            raise wrong
        return None
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise wrong
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _say(hint: Any) -> str:
    if hint in (int, float, str, bool):
        return {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_say(choice) for choice in get_args(hint) if choice is not type(None))
    if get_origin(hint) in (tuple, list):
        return f"a list of: {_say(get_args(hint)[0])}"
    return str(getattr(hint, "__name__", hint))


def _unknown(key: str, allowed: list[str], *, where: str, table: str) -> UserError:
    place = f"in [{table}]" if table else "here"
    hint = nearest(key, allowed).replace("'", f"'{table}.", 1) if table else nearest(key, allowed)
    return UserError(f"{where}: unknown key '{_join(table, key)}'{hint}\nallowed {place}: {', '.join(allowed)}")


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _join(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("the same key stands twice in one object")
    return values
