"""Errors and warnings for users.

A `UserError` is a mistake that a user can correct; every other exception is a bug of heedful. Only `cli/main.py` turns
them into exit codes.
"""

import difflib
import sys
import warnings
from collections.abc import Iterable


class UserError(Exception):
    """A user's mistake: what was found, where, what is allowed, and what to do. Commands print it without traceback."""


class Notice(UserWarning):
    """A warning for users. Commands print it without the position in the source that Python adds to warnings."""


def warn(message: str | Notice) -> None:
    """Issue a warning that points to the line of the user's program, however many functions of heedful are in between.

    A message as a plain string is a UserWarning; pass a `Notice` for one that commands print.
    """
    level, frame = 1, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "heedful":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level + 1)


class MissingExtra(UserError):
    """A missing optional dependency: `extra` is the name of heedful's extra that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional part that is not installed. Install it with: pip install 'heedful[{extra}]'"
        )


def closest_match(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that is most similar to `name`, or None if none is similar.

    >>> closest_match("warmup", ["lr", "warmup_steps"])
    'warmup_steps'
    """
    names = {candidate.casefold(): candidate for candidate in allowed}
    folded = name.casefold()
    # difflib's ratio is too low for a shortened name such as "warmup", so prefixes are accepted as well.
    close = difflib.get_close_matches(folded, names, n=1, cutoff=0.6) or [
        candidate for candidate in names if folded and (candidate.startswith(folded) or folded.startswith(candidate))
    ]
    return names[close[0]] if close else None


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return a phrase like "; did you mean 'warmup_steps'?", or "" if no allowed name is similar."""
    match = closest_match(name, allowed)
    return "" if match is None else f"; did you mean '{match}'?"


def invalid_choice(what: str, value: object, allowed: Iterable[str]) -> UserError:
    """Make the error for a value outside a closed set: the value, the most similar name, and all allowed names."""
    names = list(allowed)
    return UserError(f"{what}: unknown value {value!r}{did_you_mean(str(value), names)}\nallowed: {', '.join(names)}")
