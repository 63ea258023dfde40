"""Run by test_atomic_io: kill a writer before each of its calls that touch the disk, and check what is left.

kill_while_writing.py FOLDER exchange|rename old|nothing   ->   JSON: for each call, the contents afterwards
"""

import json
import os
import shutil
import sys
from pathlib import Path

from heedful import atomic_io


def write(folder: Path, text: str) -> None:
    with atomic_io.atomic_folder(folder) as aside:
        for name in ("a", "b"):
            (aside / name).write_text(text)


def contents(parent: Path) -> list[str]:
    """List each visible folder with its contents; check_manifest raises for a damaged one."""
    result = []
    for folder in sorted(parent.glob("[!.]*")):
        atomic_io.check_manifest(folder)
        texts = {(folder / name).read_text() for name in ("a", "b")}
        result.append(f"{folder.name}: {' and '.join(sorted(texts))}")
    return result


def die_before(call: int) -> None:
    """Count the calls that touch the disk from now on, and exit before the given one as if killed."""
    left = call

    def counted(function):
        def wrapped(*arguments, **options):
            nonlocal left
            if left == 0:
                os._exit(9)
            left -= 1
            return function(*arguments, **options)

        return wrapped

    for owner, name in (
        (os, "fsync"),
        (Path, "rename"),
        (Path, "mkdir"),
        (Path, "write_text"),
        (Path, "write_bytes"),
        (os, "unlink"),
        (os, "rmdir"),
        (atomic_io, "_exchange"),
    ):
        setattr(owner, name, counted(getattr(owner, name)))


def main(parent: Path, system: str, before: str) -> None:
    if system == "rename":
        atomic_io._exchange = lambda a, b: False
    moments = []
    for call in range(100):
        folder = parent / f"{call}"
        folder.mkdir()
        if before == "old":
            write(folder / "model", "old")
        child = os.fork()
        if child == 0:
            die_before(call)
            write(folder / "model", "new")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        moment = {"call": call, "at once": contents(folder)}
        atomic_io.clear_unfinished(folder)
        moments.append({**moment, "after clearing": contents(folder), "left": [p.name for p in folder.glob(".*")]})
        shutil.rmtree(folder)
        if os.waitstatus_to_exitcode(status) == 0:
            break
    assert all(not moment["left"] for moment in moments)
    print(json.dumps(moments))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
