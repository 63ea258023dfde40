"""The kinds of values in a trace file: each a check that says where, and what is wrong there."""

import math
from collections.abc import Callable, Mapping

from heedful.insight.packed_arrays import unpack

Check = Callable[[object, str], None]


class SchemaError(ValueError):
    """Where, and what is wrong there."""


def anything(value: object, where: str) -> None:
    pass


def just(wanted: object) -> Check:
    def check(value: object, where: str) -> None:
        if value != wanted or type(value) is not type(wanted):
            raise SchemaError(f"{where}: expected {wanted!r}, found {value!r}")

    return check


def one_of(*names: str) -> Check:
    def check(value: object, where: str) -> None:
        if value not in names:
            raise SchemaError(f"{where}: expected one of {', '.join(names)}, found {value!r}")

    return check


def text(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise SchemaError(f"{where}: expected a text, found {value!r}")


def flag(value: object, where: str) -> None:
    if not isinstance(value, bool):
        raise SchemaError(f"{where}: expected true or false, found {value!r}")


def index(count: float = math.inf) -> Check:
    def check(value: object, where: str) -> None:
        if type(value) is not int or not 0 <= value < count:
            raise SchemaError(f"{where}: expected a whole number from 0 and below {count}, found {value!r}")

    return check


count = index()


def number(value: object, where: str) -> None:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise SchemaError(f"{where}: expected a number, found {value!r}")


def probability(value: object, where: str) -> None:
    number(value, where)
    if not -1e-6 <= value <= 1 + 1e-6:  # type: ignore[operator]
        raise SchemaError(f"{where}: expected a number from 0 to 1, found {value!r}")


def list_of(check: Check, length: int | None = None) -> Check:
    def check_list(value: object, where: str) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            size = len(value) if isinstance(value, list) else value
            raise SchemaError(
                f"{where}: expected a list of {'any number' if length is None else length}, found {size!r}"
            )
        for number, one in enumerate(value):
            check(one, f"{where}[{number}]")

    return check_list


def tuple_of(*checks: Check) -> Check:
    def check(value: object, where: str) -> None:
        list_of(anything, len(checks))(value, where)
        for one, check_one, number in zip(value, checks, range(len(checks)), strict=True):  # type: ignore[call-overload]
            check_one(one, f"{where}[{number}]")

    return check


def maybe(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def object_of(**checks: Check) -> Check:
    return table_of(checks)


def table_of(checks: Mapping[str, Check]) -> Check:
    """Exactly these keys."""

    def check(value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: expected an object, found {value!r}")
        missing, surplus = sorted(set(checks) - set(value)), sorted(set(value) - set(checks))
        if missing or surplus:
            raise SchemaError(f"{where}: lacks {missing}, has {surplus} that nobody knows")
        for name, check_one in checks.items():
            check_one(value[name], f"{where}.{name}")

    return check


def packed(*shape: int, broadcast: bool = False) -> Check:
    def check(value: object, where: str) -> None:
        try:
            found = unpack(value).shape
        except ValueError as error:
            raise SchemaError(f"{where}: {error}") from None
        same = [a == b or (broadcast and a == 1) for a, b in zip(found, shape, strict=False)]
        if len(found) != len(shape) or not all(same):
            raise SchemaError(f"{where}: expected the shape {list(shape)}, found {list(found)}")

    return check
