"""Files and folders that are either complete or absent: written under another name, then renamed.

A folder written by `atomic_folder` contains `manifest.json` with the SHA-256 of each of its files. `check_manifest`
compares them, so that a changed byte, a half-copied file or an exchanged tokenizer is found before it is used.

    with atomic_folder(Path("model")) as folder:
        (folder / "weights.bin").write_bytes(weights)
    check_manifest(Path("model"))  # frozenset({"weights.bin"})
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from heedful.config import read_json
from heedful.errors import UserError

MANIFEST = "manifest.json"
ASIDE = ".writing-"  # prefix of a folder that is being written; one left behind was never completed
RETIRED = ".retired-"  # prefix of the old folder while the new one takes its name


class Unwritable(UserError):
    """A folder that cannot be created, for example because of its permissions."""


def is_full(error: Exception) -> bool:
    """Return whether writing failed because of a full disk, a quota or a limit on file sizes."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # safetensors raises another class of errors, which have the error number only in their text.
    return getattr(error, "errno", None) in full or any(f"os error {number})" in str(error) for number in full)


def explain_full_disk(error: Exception, path: Path, *, needed: int | None = None) -> Exception:
    """Turn the error of a full disk into a UserError with the number of free bytes; return other errors unchanged.

    `needed` is the number of bytes that were to be written, if it is known.
    """
    if not is_full(error):
        return error
    free = shutil.disk_usage(path.parent).free
    room = f"{free:,} bytes are free there" if needed is None else f"{needed:,} bytes are needed, {free:,} are free"
    reason = getattr(error, "strerror", None) or error
    return UserError(
        f"{path}: cannot be written ({reason}); {room}. "
        "Make room or choose another folder, then run the same command again (a training run with --resume)"
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's list of names, from the system's cache to the disk."""
    if os.name != "posix" and path.is_dir():
        return  # other systems cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that gets the name `path` only if the block ends without an error.

    Until then it is called PATH.part. With `durable`, the bytes and the name are on the disk when the block is left, so
    the file survives a power cut.
    """
    aside = path.with_name(path.name + ".part")
    try:
        with aside.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
        if durable:
            sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, values: object, *, durable: bool = False) -> None:
    """Write `values` as indented JSON in UTF-8; see `atomic_file`."""
    with atomic_file(path, durable=durable) as file:
        file.write((json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())


@contextlib.contextmanager
def atomic_folder(folder: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield an empty folder to write into; if the block succeeds, add a manifest and rename the folder to `folder`.

    An older folder of that name is replaced, but only if heedful wrote it or if it is empty. Pass `durable=False` for a
    folder that can be made again and is checked before each use: it may be damaged by a power cut, and is written
    without waiting for the disk.
    """
    place = folder.resolve()  # of a symbolic link, replace the folder that it points to
    aside = place.parent / f"{ASIDE}{place.name}-{os.getpid()}"
    try:
        _refuse_foreign(folder, place)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    except OSError as error:
        raise Unwritable(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        yield aside
        write_manifest(aside)
        for path in [*aside.rglob("*"), aside] if durable else []:
            sync(path)
        put_in_place(aside, place)
        if durable:
            sync(place.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)  # after a success: the old folder, if there was one


def put_in_place(aside: Path, folder: Path) -> None:
    """Rename `aside` to `folder`. An older folder of that name is exchanged in one step if the system can do that."""
    if not _renamed(aside, folder) and not _exchange(aside, folder):
        retired = folder.parent / f"{RETIRED}{folder.name}-{os.getpid()}"
        folder.rename(retired)
        aside.rename(folder)
        shutil.rmtree(retired, ignore_errors=True)


def _renamed(aside: Path, folder: Path) -> bool:
    """Rename `aside` to `folder` if that name is free, and return whether it was.

    Another process may take the name between the check and the renaming.
    """
    if folder.exists():
        return False
    try:
        aside.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def delete_folder(folder: Path) -> None:
    """Delete a folder after renaming it, so that under its own name it is never seen half deleted."""
    retired = _retired_name(folder)
    folder.rename(retired)
    shutil.rmtree(retired, ignore_errors=True)


def _retired_name(folder: Path) -> Path:
    return folder.parent / f"{ASIDE}{folder.name}-retired-{os.getpid()}"


def clear_unfinished(parent: Path) -> list[Path]:
    """Delete the folders that interrupted writers left in `parent`, and return their paths.

    Call it only if no other process is writing there.
    """
    for retired in sorted(parent.glob(f"{RETIRED}*")):
        name = retired.name.removeprefix(RETIRED).rpartition("-")[0]
        if not (parent / name).exists():  # stopped between the two renames of `put_in_place`: bring the old one back
            retired.rename(parent / name)
    unfinished = sorted([*parent.glob(f"{ASIDE}*"), *parent.glob(f"{RETIRED}*")])
    for path in unfinished:
        shutil.rmtree(path, ignore_errors=True)
    return unfinished


def write_manifest(folder: Path) -> None:
    """Write `manifest.json` with the SHA-256 of each file in the folder and its subfolders."""
    hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in files_below(folder)}
    (folder / MANIFEST).write_bytes(_manifest_bytes(hashes))


def check_manifest(folder: Path) -> frozenset[str]:
    """Compare each file with its SHA-256 in the manifest, and return the names of the files.

    Raise a UserError if a file is missing or has changed. Files that the manifest does not list are ignored.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{folder}: has no {MANIFEST}; it is not a folder that heedful wrote, or it was not finished")
    hashes = read_json(folder / MANIFEST).get("sha256")
    if not isinstance(hashes, dict):
        raise UserError(f"{folder / MANIFEST}: has no list of files")
    if (folder / MANIFEST).read_bytes() != _manifest_bytes(hashes):
        raise UserError(f"{folder / MANIFEST}: has changed since it was written; copy the folder again")
    for name, expected in hashes.items():
        _check_file(folder, name, expected)
    return frozenset(hashes)


def _check_file(folder: Path, name: str, expected: object) -> None:
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{folder / MANIFEST}: names a file outside of the folder: {name!r}")
        if not path.is_file():
            raise UserError(f"{path}: is missing, although {MANIFEST} lists it; copy the folder again")
        actual = sha256(path)
    except (OSError, ValueError, RuntimeError) as error:  # no permission; an impossible name; a loop of links
        raise UserError(f"{folder}: {name!r}, listed in {MANIFEST}, cannot be read: {error}") from None
    if actual != expected:
        raise UserError(
            f"{path}: has changed since it was written (its SHA-256 is not the one in {MANIFEST}); "
            "copy the folder again, or restore this file"
        )


def _manifest_bytes(hashes: dict[str, str]) -> bytes:
    """Serialise the hashes in a single spelling, so that even a changed space in the manifest is found."""
    return (json.dumps({"sha256": hashes}, indent=1, sort_keys=True) + "\n").encode()


def _refuse_foreign(folder: Path, place: Path) -> None:
    """Raise a UserError if replacing the folder would delete files that heedful did not write."""
    if place.exists() and not (place.is_dir() and ((place / MANIFEST).is_file() or not any(place.iterdir()))):
        raise UserError(
            f"{folder}: exists and is not a folder that heedful wrote; choose another name, or move it away"
        )


def files_below(folder: Path) -> list[Path]:
    """List all files of a folder and its subfolders except its own manifest, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step with Linux's renameat2; return False if the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    at_current_folder, exchange = -100, 2
    return bool(libc.renameat2(at_current_folder, os.fsencode(a), at_current_folder, os.fsencode(b), exchange) == 0)
