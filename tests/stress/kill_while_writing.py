"""Run by test_files: a writer is killed before each of its calls that touch the disk, and the rest is looked at.

kill_while_writing.py FOLDER exchange|rename old|nothing   ->   JSON: for each moment, what there was afterwards
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


def found(parent: Path) -> list[str]:
    """Each visible folder and what it holds; a damaged one would raise."""
    result = []
    for folder in sorted(parent.glob("[!.]*")):
        atomic_io.check_manifest(folder)
        texts = {(folder / name).read_text() for name in ("a", "b")}
        result.append(f"{folder.name}: {' and '.join(sorted(texts))}")
    return result


def die_before(call: int) -> None:
    """From here on, count the calls that touch the disk, and exit before the given one as if killed."""
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
        place = parent / f"{call}"
        place.mkdir()
        if before == "old":
            write(place / "model", "old")
        child = os.fork()
        if child == 0:
            die_before(call)
            write(place / "model", "new")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        moment = {"call": call, "at once": found(place)}
        atomic_io.clear_unfinished(place)
        moments.append({**moment, "after clearing": found(place), "left": [p.name for p in place.glob(".*")]})
        shutil.rmtree(place)
        if os.waitstatus_to_exitcode(status) == 0:
            break
    assert all(not moment["left"] for moment in moments)
    print(json.dumps(moments))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
