"""Standard streams that somebody closed (`heedful … >&-`), and what the system says when an output fails.

Where results go: standard output, or a file that gets its name only when it is complete.
"""

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from heedful.atomic_io import sync
from heedful.cli.input import STANDARD_INPUT
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


UNFINISHED = ".part"


def refuse_overwriting(written: Path | None, *read: Path | None, option: str = "--output") -> None:
    """Refuse to put the result where the input is: it would be gone, and nothing could be made anew from it."""
    place = None if written is None else _status(written)
    if place is None or not stat.S_ISREG(place.st_mode):
        return
    if any(status is not None and os.path.samestat(place, status) for status in map(_status, filter(None, read))):
        raise UserError(f"{option} {written}: is a file that is read, and would be lost; name another file")


def _status(path: Path) -> os.stat_result | None:
    try:
        if path == STANDARD_INPUT:
            return None if sys.stdin is None else os.fstat(sys.stdin.fileno())
        return path.stat()
    except (OSError, ValueError):  # not there, or nothing that a file can be called: whoever opens it says so
        return None


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """A stream for bytes. A file is written beside its place as PATH.part, which stays there if the work breaks off."""
    if path is None:
        with named("standard output"):
            yield sys.stdout.buffer
        return
    place = path.resolve()  # a link stays a link
    if _is_no_file(place):  # /dev/null, a named pipe: nothing to put in place
        with named(path), _open(place) as stream:
            yield stream
        return
    unfinished = place.with_name(place.name + UNFINISHED)
    if not place.parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}; make it, or name another place")
    with named(unfinished), _open(unfinished) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    try:
        unfinished.replace(place)
    except FileNotFoundError:
        raise UserError(
            f"{unfinished}: is gone, before it could become {path}: does another program write there at the same time? "
            "Give each an --output of its own"
        ) from None
    sync(place.parent)


def print_json(text: str) -> None:
    """In UTF-8, whatever standard output is in for people: programs expect nothing else."""
    with open_output(None) as out:
        out.write(text.encode() + b"\n")


def _is_no_file(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def named(path: Path | str) -> Iterator[None]:
    """An output that fails is reported with the name of the file: the system's error has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in REMEDIES:
            error.filename = str(path)
        raise
