"""Settings: frozen dataclasses on one side, TOML and JSON on the other.

The dataclass is the truth: its fields are the allowed keys, its annotations the allowed types, its defaults the only
defaults. Whatever does not fit is refused with the nearest name, so that no setting is ever ignored in silence.

A field holds a bool, int, float, str, Path, Literal, another dataclass, or a tuple, list or dict of these, or a union
of them. A field that may be None has None as its default: TOML cannot say "nothing", so nothing is what is left out.
Any is for a table whose keys somebody else checks.
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

import tomli_w

from heedful.errors import UserError, closest_match, invalid_choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Values = Mapping[str, Any]
T = TypeVar("T", bound="DataclassInstance")

NAMES_OF_TYPES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Path: "a path"}


def config_from_dict(kind: type[T], values: Values, *, where: str, table: str = "") -> T:
    """Build the dataclass `kind` from plain values; `where` names the file or option for the error message."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise _unknown(key, list(fields), hints, where=where, table=table)
    given = {key: _convert(value, hints[key], where=where, key=_join(table, key)) for key, value in values.items()}
    for name, field in fields.items():
        if name not in given and _is_required(field):
            raise UserError(f"{where}: '{_join(table, name)}' is missing and has no default")
    try:
        return kind(**given)
    except UserError as error:  # raised by __post_init__, which knows the fields but neither the file nor the table
        raise UserError(f"{where}: [{table}] {error}" if table else f"{where}: {error}") from None


def config_to_dict(settings: "DataclassInstance") -> dict[str, Any]:
    """The plain values of a dataclass, None left out: TOML has no null, and absent means default."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not field.init:
            continue
        if value is None:
            # Left out, it must come back as None: any other default would change the setting in silence.
            assert field.default is None, f"{type(settings).__name__}.{field.name} may be None: so must its default be"
        else:
            values[field.name] = _plain(value)
    return values


def to_toml(settings: "DataclassInstance") -> str:
    return tomli_w.dumps(config_to_dict(settings))


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file; a syntax error names the file and the line."""
    text = _read_text(Path(path))
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable TOML file: {error}") from None


def read_json(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file; duplicate keys are refused, since readers disagree on which one counts."""
    text = _read_text(Path(path))
    try:
        values = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, found {_show(values)}")
    return values


def with_overrides(values: Values, overrides: Iterable[str]) -> dict[str, Any]:
    """Apply `a.b=c` strings on top of plain values; c is read as TOML, and as a string where it is not TOML."""
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
        return data.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}: line {line} (byte {error.start}): invalid UTF-8 byte 0x{data[error.start]:02X}. "
            "Save the file as UTF-8."
        ) from None


def _read_value(text: str) -> Any:
    # Inside a list, and before another item, a stray comment, comma or second line cannot pass for a part of a value.
    try:
        found = tomllib.loads(f"value = [{text}, 0]")
    except (ValueError, RecursionError):
        return text
    return found["value"][0] if len(found) == 1 and len(found["value"]) == 2 else text


def _copy(values: Values) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _convert(value: Any, hint: Any, *, where: str, key: str) -> Any:
    """`value` as the annotation `hint` wants it, or a UserError that names the key, the value and what is wanted."""
    if hint is Any:  # a table that somebody else reads, with an allow-list of its own
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
    if isinstance(value, bool) and hint is not bool:  # a bool is an int to Python, not to a person
        raise wrong
    if hint is float and isinstance(value, int):
        value = _as_float(value)
    if not isinstance(value, hint) or value != value:  # nan: no setting means it, and it would not equal itself
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
    if isinstance(value, Mapping):  # can only be meant for a table
        choices = [choice for choice in choices if dataclasses.is_dataclass(choice)] or choices
    if len(choices) == 1:  # its own error says more than ours
        return _convert(value, choices[0], where=where, key=key)
    exact = [choice for choice in choices if choice is type(value)]  # 1 for `float | int` stays whole
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
    """What a person would call the type: "a whole number or one of: auto"."""
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
    """The value as Python writes it, and its type; long ones are cut."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def _unknown(key: str, allowed: list[str], hints: Mapping[str, Any], *, where: str, table: str) -> UserError:
    meant = closest_match(key, allowed) or _in_a_table(key, allowed, hints)
    hint = f"; did you mean '{_join(table, meant)}'?" if meant else ""
    place = f"in [{table}]" if table else "here"
    return UserError(f"{where}: unknown key '{_join(table, key)}'{hint}\nallowed {place}: {', '.join(allowed)}")


def _in_a_table(key: str, tables: list[str], hints: Mapping[str, Any]) -> str | None:
    """Where a key belongs that was written outside its table: `lr` for `optimiser.lr`."""
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
            raise ValueError(f"the key {key!r} stands twice in one object")
        values[key] = value
    return values
