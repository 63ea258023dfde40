"""Standard streams that somebody closed (`heedful … >&-`), and what the system says when an output fails."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from heedful.errors import UserError

# What a user can do about an output that fails.
REMEDIES = {
    errno.ENOSPC: "free some space, or write to another disk, and run the command again",
    errno.EDQUOT: "free some space, or write to another disk, and run the command again",
    errno.EFBIG: "no file may be that large here; raise the limit (`ulimit -f` shows it), or write to another disk",
    errno.EIO: "the disk, or the way to it, does not work; write to another one, and look after this one",
}


class Closed(io.TextIOBase):
    """In place of a standard output that is closed: who writes nothing to it does not mind."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> NoReturn:
        raise UserError("standard output is closed; name a file with --output, or redirect it: > FILE")

    def write(self, text: str) -> NoReturn:
        raise UserError("standard output is closed; redirect it: > FILE")


def escape_unwritable() -> None:
    """From here on, standard output escapes what its encoding lacks: texts and tokens are in any script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def closed_streams_replaced() -> Iterator[None]:
    """Python has None for a stream that is closed. Its number goes to nothing, lest the next file that is opened get it
    and with it what libraries print.
    """
    if sys.stdout is not None and sys.stderr is not None:
        yield
        return
    for number in range(3):
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    out, err = sys.stdout, sys.stderr
    try:
        sys.stdout = Closed() if out is None else out
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            sys.stderr = nothing if err is None else err
            yield
    finally:
        sys.stdout, sys.stderr = out, err
