"""Where results go: standard output, or a file that gets its name only when it is complete."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from heedful.cli.streams import REMEDIES
from heedful.cli.text_input import STANDARD_INPUT
from heedful.errors import UserError
from heedful.files import sync

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
