"""One run folder has one owner at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from heedful.errors import UserError


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own the folder until the end of the block or of the process: the lock goes with its holder, even a killed one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise UserError(f"{folder}: cannot hold a run: {error.strerror}. Choose another folder") from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"{folder}: another process ({file.read().strip() or 'unknown'}) trains in this folder; "
                "wait for it, stop it, or choose another folder"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        yield
