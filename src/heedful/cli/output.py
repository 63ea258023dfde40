"""Where the output of a command goes: standard output or a file that appears when it is complete; messages to the user.

Also standard streams that the caller closed (`heedful … >&-`), and what to do about an output that fails.
"""

import contextlib
import errno
import io
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from heedful.atomic_io import sync
from heedful.cli.input import STANDARD_INPUT
from heedful.errors import UserError

# What a user can do about an output that fails, by the system's error number.
REMEDIES = {
    errno.ENOSPC: "free some space, or write to another disk, and run the command again",
    errno.EDQUOT: "free some space, or write to another disk, and run the command again",
    errno.EFBIG: "the file is larger than this system allows; raise the limit (`ulimit -f`), or write to another disk",
    errno.EIO: "the disk, or the connection to it, fails; write to another disk and check this one",
}


def print_message(text: str) -> None:
    """Print a message of the program on standard error."""
    print(f"heedful: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def warnings_as_messages() -> Iterator[None]:
    """Print the warnings of a block as messages at its end, each text once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, UserWarning)):
        print_message(text)


class ClosedOutput(io.TextIOBase):
    """Replaces a closed standard output: writing to it raises a UserError with the remedy."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> NoReturn:
        raise UserError("standard output is closed; name a file with --output, or redirect it: > FILE")

    def write(self, text: str) -> NoReturn:
        raise UserError("standard output is closed; redirect it: > FILE")


def escape_unwritable() -> None:
    """Let standard output escape characters that its encoding lacks, since texts may be in any script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def replace_closed_streams() -> Iterator[None]:
    """Replace closed standard streams, for which Python has None.

    A closed stream's descriptor is opened on /dev/null: otherwise the next file that is opened would get its number and
    receive what libraries print.
    """
    if sys.stdout is not None and sys.stderr is not None:
        yield
        return
    for number in range(3):
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    out, err = sys.stdout, sys.stderr
    try:
        sys.stdout = ClosedOutput() if out is None else out
        with open(os.devnull, "w", encoding="utf-8") as null:
            sys.stderr = null if err is None else err
            yield
    finally:
        sys.stdout, sys.stderr = out, err


UNFINISHED = ".part"


def refuse_overwriting(output: Path | None, *inputs: Path | None, option: str = "--output") -> None:
    """Raise a UserError if the output is one of the input files, which would be lost."""
    status = None if output is None else _status(output)
    if status is None or not stat.S_ISREG(status.st_mode):
        return
    if any(other is not None and os.path.samestat(status, other) for other in map(_status, filter(None, inputs))):
        raise UserError(f"{option} {output}: is a file that is read, and would be lost; name another file")


def _status(path: Path) -> os.stat_result | None:
    try:
        if path == STANDARD_INPUT:
            return None if sys.stdin is None else os.fstat(sys.stdin.fileno())
        return path.stat()
    except (OSError, ValueError):  # missing, or no valid name of a file: opening it reports that
        return None


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open standard output or a file for bytes.

    A file is written as PATH.part and renamed to PATH when it is complete; after an error PATH.part stays.
    """
    if path is None:
        with name_in_errors("standard output"):
            yield sys.stdout.buffer
        return
    target = path.resolve()  # a symbolic link stays a link
    if _is_device_or_pipe(target):  # /dev/null or a named pipe cannot be replaced by a renamed file
        with name_in_errors(path), _open(target) as stream:
            yield stream
        return
    unfinished = target.with_name(target.name + UNFINISHED)
    if not target.parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}; make it, or name another file")
    with name_in_errors(unfinished), _open(unfinished) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    try:
        unfinished.replace(target)
    except FileNotFoundError:
        raise UserError(
            f"{unfinished}: was removed before it could be renamed to {path}. Does another program write to it? "
            "Give each program another --output"
        ) from None
    sync(target.parent)


def print_json(text: str) -> None:
    """Print JSON in UTF-8, whatever the encoding of standard output: programs expect nothing else."""
    with open_output(None) as out:
        out.write(text.encode() + b"\n")


def _is_device_or_pipe(path: Path) -> bool:
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
def name_in_errors(path: Path | str) -> Iterator[None]:
    """Add the name of the file to an error of the output, which the system reports without one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in REMEDIES:
            error.filename = str(path)
        raise
