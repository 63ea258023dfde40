"""What goes wrong by the user's hand, said in one paragraph.

Everything else that is raised is a bug of ours; only `cli/main.py` turns either into an exit code.
"""

import difflib
import sys
import warnings
from collections.abc import Iterable


class UserError(Exception):
    """What was given, where, what is allowed, what to do. Shown without a traceback."""


class Notice(UserWarning):
    """What a user should know, although all goes on. A command says it without the place in the source."""


def warn(words: str | Notice) -> None:
    """Warn at the line of the user's own program that led here, through however many functions of heedful's."""
    level, frame = 1, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "heedful":
        level, frame = level + 1, frame.f_back
    warnings.warn(words, stacklevel=level + 1)


class MissingExtra(UserError):
    """A part of heedful that is installed only when asked for."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional part that is not installed. Install it with: pip install 'heedful[{extra}]'"
        )


def closest_match(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that was probably meant, or None when no name is close."""
    names = {name.casefold(): name for name in allowed}
    wanted = given.casefold()
    # A name that somebody cut short ("warmup") is closer to what they meant than difflib's ratio says.
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6) or [
        name for name in names if wanted and (name.startswith(wanted) or wanted.startswith(name))
    ]
    return names[close[0]] if close else None


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """A phrase like "; did you mean 'warmup_steps'?", or nothing when no allowed name is close."""
    name = closest_match(given, allowed)
    return "" if name is None else f"; did you mean '{name}'?"


def invalid_choice(what: str, given: object, allowed: Iterable[str]) -> UserError:
    """The error for a name outside a closed set: the value, the nearest name and the whole set."""
    names = list(allowed)
    return UserError(f"{what}: unknown value {given!r}{did_you_mean(str(given), names)}\nallowed: {', '.join(names)}")
