"""Blocks of lines from a file or from standard input; typed or piped lines are passed on as soon as they arrive."""

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
# The first block is small, so that the first outputs appear soon; each next block is twice as large.
FIRST_BLOCK, LARGEST_BLOCK, BLOCK_BYTES = 32, 1024, 1 << 20


class PipeReader:
    """Reads lines from a descriptor; unlike Python's own readers it can tell whether a line has arrived already."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = bytearray()
        self._searched = 0  # there is no line end before this position
        self._at_end = False

    def peek(self, size: int, /) -> bytes:
        """Return up to `size` bytes without consuming them; wait if there are none yet."""
        if not self._bytes:
            self._fetch()
        return bytes(self._bytes[:size])

    def readline(self, size: int, /) -> bytes:
        """Return one line with its end, or the first `size` bytes of a longer one; b"" at the end of the input."""
        while not self._has_line() and len(self._bytes) < size and not self._at_end:
            self._fetch()
        end = self._bytes.find(b"\n", 0, size) + 1 or min(size, len(self._bytes))
        line = bytes(self._bytes[:end])
        del self._bytes[:end]
        self._searched = 0
        return line

    def ready(self) -> bool:
        """Return whether `readline` would return without waiting."""
        while not self._has_line() and not self._at_end and len(self._bytes) < MAX_LINE_BYTES + BLOCK:
            if not self._can_read():
                return False
            self._fetch()
        return True

    def _has_line(self) -> bool:
        position = self._bytes.find(b"\n", self._searched)
        self._searched = len(self._bytes) if position < 0 else position
        return position >= 0

    def _can_read(self) -> bool:
        if os.name != "posix":  # elsewhere `select` takes sockets only; lines are then passed on one at a time
            return False
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def _fetch(self) -> None:
        data = os.read(self._descriptor, BLOCK)
        self._bytes += data
        self._at_end = not data  # one Ctrl-D ends the input of a terminal: do not read again


class TextInput:
    """The input of a command: a text file, a pipe or standard input. Use it as a context."""

    def __init__(self, path: Path, *, command: str = "…") -> None:
        """Open the input and raise a UserError now, before a model is loaded; `command` is named in the remedy."""
        self.name = STANDARD_INPUT_NAME if path == STANDARD_INPUT else str(path)
        self._path = path
        self._pipe: PipeReader | None = None
        self._descriptor: int | None = None
        if path == STANDARD_INPUT:
            if sys.stdin is None:
                raise UserError("standard input is closed; name a file, or redirect one: < FILE")
            self._pipe = PipeReader(sys.stdin.fileno())
        elif is_pipe(path):
            self._descriptor = _open(path)
            self._pipe = PipeReader(self._descriptor)
        elif path.is_dir():
            raise UserError(
                f"{path}: a folder, where a file was expected; name one file, or pipe several: "
                f"cat {shlex.quote(str(path))}/* | heedful {command}"
            )
        elif " " in str(path) and not os.path.lexists(path):
            raise UserError(
                f"{path}: no such file. To process a sentence, pipe it: "
                f"echo {shlex.quote(str(path))} | heedful {command}"
            )
        else:
            open_bytes(path).close()

    def __enter__(self) -> "TextInput":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    @property
    def is_terminal(self) -> bool:
        return self._path == STANDARD_INPUT and sys.stdin.isatty()

    @property
    def n_bytes(self) -> int | None:
        """The size of the input in bytes; None for a pipe, a terminal or a compressed file."""
        if self._pipe is None and self._path.suffix in COMPRESSIONS:
            return None
        try:
            status = os.fstat(sys.stdin.fileno()) if self._path == STANDARD_INPUT else self._path.stat()
        except OSError:  # opening the file reports it
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def lines(self) -> Iterator[Line]:
        """Iterate over the lines, with their positions in the input."""
        if self._pipe is None:
            return read_lines(self._path)
        return lines_of(self._pipe, self.name)

    def ready(self) -> bool:
        """Return whether the next line can be read without waiting; in a file it always can."""
        return self._pipe is None or self._pipe.ready()

    def blocks(self, *, full: bool = False) -> Iterator[list[Line]]:
        """Yield blocks of the lines that have arrived, up to a maximum size; with `full`, wait for the maximum size."""
        block: list[Line] = []
        n_bytes, block_size = 0, FIRST_BLOCK
        for line in self.lines():
            block.append(line)
            n_bytes += len(line.content)
            if len(block) >= block_size or n_bytes >= BLOCK_BYTES or not (full or self.ready()):
                yield block
                block, n_bytes, block_size = [], 0, min(2 * block_size, LARGEST_BLOCK)
        if block:
            yield block


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
