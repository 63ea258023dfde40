"""Convert settings between frozen dataclasses and the plain values of TOML and JSON files.

The fields of a dataclass are the allowed keys, their annotations the allowed types, their defaults the only defaults.
An unknown key or a wrong type raises a UserError with the most similar name, so no setting is silently ignored.

A field is a bool, int, float, str, Path, Literal or dataclass, a tuple, list or dict of these, or a union. A field that
may be None must have the default None, because TOML has no null: None is written by leaving the key out. Fields of type
Any are not checked here.
"""

import dataclasses
import json
import math
import reprlib
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from heedful.errors import UserError, closest_match, invalid_choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Values = Mapping[str, Any]
T = TypeVar("T", bound="DataclassInstance")

NAMES_OF_TYPES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Path: "a path"}


def config_from_dict(kind: type[T], values: Values, *, where: str, table: str = "") -> T:
    """Build the dataclass `kind` from plain values; `where` is the file or option, for error messages."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise _unknown(key, list(fields), hints, where=where, table=table)
    converted = {key: _convert(value, hints[key], where=where, key=_join(table, key)) for key, value in values.items()}
    for name, field in fields.items():
        if name not in converted and _is_required(field):
            raise UserError(f"{where}: '{_join(table, name)}' is missing and has no default")
    try:
        return kind(**converted)
    except UserError as error:  # raised by __post_init__, which has neither the file nor the table in its message
        raise UserError(f"{where}: [{table}] {error}" if table else f"{where}: {error}") from None


def config_to_dict(settings: "DataclassInstance") -> dict[str, Any]:
    """Convert a dataclass to plain values, without fields that are None."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not field.init:
            continue
        if value is None:
            # A key that is left out is read back as the default, which must therefore be None.
            assert field.default is None, (
                f"{type(settings).__name__}.{field.name} may be None, so its default must be None"
            )
        else:
            values[field.name] = _plain(value)
    return values


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; UserError if it is missing or has a syntax error."""
    text = _read_text(Path(path))
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable TOML file: {error}") from None


def read_json(path: str | Path) -> dict[str, Any]:
    """Read the object in a JSON file; UserError for anything else, and for a key that occurs twice in an object."""
    text = _read_text(Path(path))
    try:
        values = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, found {_show(values)}")
    return values


def with_overrides(values: Values, overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `values` with `a.b=c` strings applied; c is read as TOML or, if that fails, as a string."""
    result = _copy(values)
    for override in overrides:
        path, equals, text = override.partition("=")
        names = [name.strip() for name in path.split(".")]
        if not equals or not all(names):
            raise UserError(f"--set {override}: expected key=value, for example --set optimiser.lr=0.001")
        inner = result
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {override}: '{name}' is a value, not a table")
        inner[names[-1]] = _read_value(text.strip())
    return result


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}: line {line} (byte {error.start}): invalid UTF-8 byte 0x{data[error.start]:02X}. "
            "Save the file as UTF-8."
        ) from None


def _read_value(text: str) -> Any:
    # Inside a list, followed by another item: so a comment, a comma or a second line in `text` is not read as TOML.
    try:
        parsed = tomllib.loads(f"value = [{text}, 0]")
    except (ValueError, RecursionError):
        return text
    return parsed["value"][0] if len(parsed) == 1 and len(parsed["value"]) == 2 else text


def _copy(values: Values) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _convert(value: Any, hint: Any, *, where: str, key: str) -> Any:
    """Convert `value` to the annotated type `hint`; UserError with the key, the value and the expected type."""
    if hint is Any:  # checked by the code that reads the field
        return value
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: '{key}' must be a table, found {_show(value)}")
        return config_from_dict(typing.cast("type[DataclassInstance]", hint), value, where=where, table=key)
    wrong = UserError(f"{where}: '{key}' must be {_say(hint)}, found {_show(value)}")
    convert = CONVERTERS.get(get_origin(hint))
    if convert is not None:
        return convert(value, hint, wrong, where=where, key=key)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, bool) and hint is not bool:  # in Python a bool is an int
        raise wrong
    if hint is float and isinstance(value, int):
        value = _as_float(value)
    if not isinstance(value, hint) or value != value:  # nan is no sensible setting, and does not equal itself
        raise wrong
    return value


def _convert_choice(value: Any, hint: Any, wrong: UserError, *, where: str, key: str) -> Any:
    choices = get_args(hint)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise invalid_choice(f"{where}: '{key}'", value, map(str, choices))
    return value


def _convert_union(value: Any, hint: Any, wrong: UserError, *, where: str, key: str) -> Any:
    choices = [choice for choice in get_args(hint) if choice is not types.NoneType]
    if value is None and len(choices) < len(get_args(hint)):
        return None
    if isinstance(value, Mapping):  # only a dataclass can be meant
        choices = [choice for choice in choices if dataclasses.is_dataclass(choice)] or choices
    if len(choices) == 1:  # its error is more specific
        return _convert(value, choices[0], where=where, key=key)
    exact = [choice for choice in choices if choice is type(value)]  # for `float | int`, 1 stays an int
    for choice in exact + choices:
        try:
            return _convert(value, choice, where=where, key=key)
        except UserError:
            continue
    raise wrong


def _convert_items(value: Any, hint: Any, wrong: UserError, *, where: str, key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise wrong
    arguments = get_args(hint)
    if get_origin(hint) is list or arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise wrong
    items = (
        _convert(item, argument, where=where, key=f"{key}[{i}]")
        for i, (item, argument) in enumerate(zip(value, arguments, strict=True))
    )
    return list(items) if get_origin(hint) is list else tuple(items)


def _convert_mapping(value: Any, hint: Any, wrong: UserError, *, where: str, key: str) -> Any:
    if not isinstance(value, Mapping):
        raise wrong
    return {name: _convert(item, get_args(hint)[1], where=where, key=_join(key, name)) for name, item in value.items()}


CONVERTERS: Mapping[Any, Callable[..., Any]] = {
    Literal: _convert_choice,
    Union: _convert_union,
    types.UnionType: _convert_union,
    tuple: _convert_items,
    list: _convert_items,
    dict: _convert_mapping,
}


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:  # more than 308 digits
        return math.nan


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return config_to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def _say(hint: Any) -> str:
    """Describe a type for a message: "a whole number or one of: auto"."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of: {', '.join(map(str, arguments))}"
    if origin in (Union, types.UnionType):
        return " or ".join(_say(choice) for choice in arguments if choice is not types.NoneType)
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        return f"a list, each item {_say(arguments[0])}"
    if origin is tuple:
        return f"a list of {len(arguments)}: {', '.join(map(_say, arguments))}"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "a table"
    return NAMES_OF_TYPES.get(hint, str(hint))


def _show(value: Any) -> str:
    """Show a value, shortened if it is long, and its type."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def _unknown(key: str, allowed: list[str], hints: Mapping[str, Any], *, where: str, table: str) -> UserError:
    meant = closest_match(key, allowed) or _in_a_table(key, allowed, hints)
    hint = f"; did you mean '{_join(table, meant)}'?" if meant else ""
    place = f"in [{table}]" if table else "here"
    return UserError(f"{where}: unknown key '{_join(table, key)}'{hint}\nallowed {place}: {', '.join(allowed)}")


def _in_a_table(key: str, tables: list[str], hints: Mapping[str, Any]) -> str | None:
    """Find the table of a key that was written outside of it: `optimiser.lr` for `lr`."""
    for table in tables:
        if dataclasses.is_dataclass(hints[table]) and key in {field.name for field in dataclasses.fields(hints[table])}:
            return _join(table, key)
    return None


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _join(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        values[key] = value
    return values
