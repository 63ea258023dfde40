"""Messages between two processes: a few blobs of bytes, each with its length before it."""

import struct
from collections.abc import Sequence
from typing import IO

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
