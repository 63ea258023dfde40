"""Lines to work on: of a file, or of standard input as they come, so that who types one is answered at once."""

import os
import select
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from heedful.data.lines import BLOCK, COMPRESSIONS, MAX_LINE_BYTES, Line, is_pipe, lines_of, open_bytes, read_lines
from heedful.data.problems import STANDARD_INPUT as STANDARD_INPUT_NAME
from heedful.errors import UserError

STANDARD_INPUT = Path("-")
# The first block is small, so that the first lines come out soon; each next one is twice as large.
FIRST_BLOCK, LARGEST_BLOCK, BLOCK_BYTES = 32, 1024, 1 << 20


class Arriving:
    """What comes through a descriptor. Unlike Python's own readers it can tell whether a line is already there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = bytearray()
        self._searched = 0  # no line end before this place
        self._ended = False

    def peek(self, size: int, /) -> bytes:
        if not self._bytes:
            self._fetch()
        return bytes(self._bytes[:size])

    def readline(self, size: int, /) -> bytes:
        while not self._has_line() and len(self._bytes) < size and not self._ended:
            self._fetch()
        end = self._bytes.find(b"\n", 0, size) + 1 or min(size, len(self._bytes))
        line = bytes(self._bytes[:end])
        del self._bytes[:end]
        self._searched = 0
        return line

    def ready(self) -> bool:
        """Whether `readline` would answer without waiting."""
        while not self._has_line() and not self._ended and len(self._bytes) < MAX_LINE_BYTES + BLOCK:
            if not self._something_came():
                return False
            self._fetch()
        return True

    def _has_line(self) -> bool:
        found = self._bytes.find(b"\n", self._searched)
        self._searched = len(self._bytes) if found < 0 else found
        return found >= 0

    def _something_came(self) -> bool:
        if os.name != "posix":  # elsewhere only sockets can be asked: one line at a time then
            return False
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def _fetch(self) -> None:
        part = os.read(self._descriptor, BLOCK)
        self._bytes += part
        self._ended = not part  # at a terminal one Ctrl-D ends it: no second reading


class TextInput:
    """Where the lines come from; use as a context."""

    def __init__(self, path: Path) -> None:
        self.name = STANDARD_INPUT_NAME if path == STANDARD_INPUT else str(path)
        self._path = path
        self._arriving: Arriving | None = None
        self._opened: int | None = None
        if path == STANDARD_INPUT and sys.stdin is None:
            raise UserError("standard input is closed; name a file, or redirect one: < FILE")
        if path == STANDARD_INPUT:
            self._arriving = Arriving(sys.stdin.fileno())
        elif is_pipe(path):
            self._opened = _open(path)
            self._arriving = Arriving(self._opened)
        elif path.is_dir():
            raise UserError(
                f"{path}: a folder, where a file was expected; name one file, or give several to standard input: "
                f"cat {shlex.quote(str(path))}/* | heedful …"
            )
        else:
            open_bytes(path).close()  # what is wrong with it is said now, not after a model was loaded

    def __enter__(self) -> "TextInput":
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            os.close(self._opened)

    @property
    def is_terminal(self) -> bool:
        return self._path == STANDARD_INPUT and sys.stdin.isatty()

    @property
    def n_bytes(self) -> int | None:
        """How many there will be, where that can be known."""
        if self._arriving is None and self._path.suffix in COMPRESSIONS:
            return None
        try:
            found = os.fstat(sys.stdin.fileno()) if self._path == STANDARD_INPUT else self._path.stat()
        except OSError:
            return None  # whoever opens it says why
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def lines(self) -> Iterator[Line]:
        if self._arriving is None:
            return read_lines(self._path)
        return lines_of(self._arriving, self.name)

    def ready(self) -> bool:
        """Whether the next line is there already; of a file it always is."""
        return self._arriving is None or self._arriving.ready()

    def blocks(self, *, full: bool = False) -> Iterator[list[Line]]:
        """The lines that are there, up to a number and size; `full`: wait for that many."""
        block: list[Line] = []
        n_bytes, most = 0, FIRST_BLOCK
        for line in self.lines():
            block.append(line)
            n_bytes += len(line.content)
            if len(block) >= most or n_bytes >= BLOCK_BYTES or not (full or self.ready()):
                yield block
                block, n_bytes, most = [], 0, min(2 * most, LARGEST_BLOCK)
        if block:
            yield block


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
