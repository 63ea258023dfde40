"""Messages between two processes: a few blobs of bytes, each with its length before it.

A child process that answers one message after the other.

A plain program, neither a fork nor `multiprocessing`: a script needs no `__main__` guard, nothing is pickled, and no
child outlives its parent. However the parent ends, its pipes close, and that ends the child.
"""

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from heedful.errors import UserError

_HEAD = struct.Struct("<?I")  # whether this is an error, and how many blobs follow
_SIZE = struct.Struct("<Q")


def write_message(pipe: IO[bytes], blobs: Sequence[bytes], *, error: bool = False) -> None:
    pipe.write(_HEAD.pack(error, len(blobs)))
    for blob in blobs:
        pipe.write(_SIZE.pack(len(blob)))
        pipe.write(blob)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> tuple[bool, list[bytes]]:
    """(whether it is an error, its blobs); EOFError when the other end has closed the pipe."""
    error, n_blobs = _HEAD.unpack(_read(pipe, _HEAD.size))
    return error, [_read(pipe, _SIZE.unpack(_read(pipe, _SIZE.size))[0]) for _ in range(n_blobs)]


def _read(pipe: IO[bytes], n_bytes: int) -> bytes:
    data = pipe.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return data


class Worker:
    """`module` run as a program until it is closed."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, name: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name = name  # in messages
        root = str(Path(__file__).parents[2])  # so that the child finds this very heedful
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path, **(variables or {})},
            # Ctrl-C goes to the parent alone, which then ends its children.
            process_group=0 if os.name == "posix" else None,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()  # it holds nothing that is worth a farewell
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()

    def ask(self, blobs: Sequence[bytes]) -> tuple[bool, list[bytes]]:
        """Whether the answer is an error, and the answer."""
        self.tell(blobs)
        from_child = self._process.stdout
        assert from_child is not None
        try:
            return read_message(from_child)
        except EOFError:
            raise self._ended() from None

    def tell(self, blobs: Sequence[bytes]) -> None:
        """Send what has no answer."""
        to_child = self._process.stdin
        assert to_child is not None
        try:
            write_message(to_child, blobs)
        except BrokenPipeError:
            raise self._ended() from None

    def _ended(self) -> UserError:
        return UserError(
            f"{self.name} (pid {self.pid}) ended with code {self._process.wait()} "
            "(-9 often means that memory ran out): run again with fewer workers"
        )
