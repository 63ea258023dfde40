"""A child process that answers one message after the other, and the messages that it exchanges with its parent.

A message is a list of byte strings, each preceded by its length. The child is a module that is run with `python -m`,
neither a fork nor `multiprocessing`: so a script needs no `if __name__ == "__main__"`, and nothing is pickled. When the
parent ends, for whatever reason, its pipes are closed, and that ends the child.
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

_HEAD = struct.Struct("<?I")  # whether the message is an error, and the number of byte strings that follow
_SIZE = struct.Struct("<Q")


def write_message(pipe: IO[bytes], blobs: Sequence[bytes], *, error: bool = False) -> None:
    """Write one message; set `error` if it reports a failure."""
    pipe.write(_HEAD.pack(error, len(blobs)))
    for blob in blobs:
        pipe.write(_SIZE.pack(len(blob)))
        pipe.write(blob)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> tuple[bool, list[bytes]]:
    """Read one message: (whether it is an error, its byte strings). EOFError if the other end closed the pipe."""
    error, n_blobs = _HEAD.unpack(_read(pipe, _HEAD.size))
    return error, [_read(pipe, _SIZE.unpack(_read(pipe, _SIZE.size))[0]) for _ in range(n_blobs)]


def _read(pipe: IO[bytes], n_bytes: int) -> bytes:
    data = pipe.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return data


class Worker:
    """A running child process of the module `module`; `name` stands for it in error messages."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, name: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        root = str(Path(__file__).parents[2])  # so that the child imports this copy of heedful
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path, **(variables or {})},
            # A new process group: so Ctrl-C reaches only the parent, which then closes its workers.
            process_group=0 if os.name == "posix" else None,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Kill the process, which has no state to save, and wait for its end."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()

    def request(self, blobs: Sequence[bytes]) -> tuple[bool, list[bytes]]:
        """Send a message and wait for the answer: (whether it is an error, its byte strings)."""
        self.send(blobs)
        from_child = self._process.stdout
        assert from_child is not None
        try:
            return read_message(from_child)
        except EOFError:
            raise self._ended() from None

    def send(self, blobs: Sequence[bytes]) -> None:
        """Send a message that has no answer."""
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
