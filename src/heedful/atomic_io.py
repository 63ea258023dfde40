"""Folders that are either whole or absent: written aside, synced to the disk, renamed when complete.

A folder made here carries `manifest.json` with the SHA-256 of each of its files, so that a changed byte, a half-written
file or a swapped tokenizer is found before anything is used.
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
ASIDE = ".writing-"  # a folder with this prefix was never completed and may be deleted
RETIRED = ".retired-"  # the old folder, for the moment in which the new one takes its name


class Unwritable(UserError):
    """A place where no folder can be made."""


def is_full(error: Exception) -> bool:
    """Whether a full disk, a quota or a limit on the size of files is what stopped the writing."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # safetensors has an error of its own, and says the number only in words.
    return getattr(error, "errno", None) in full or any(f"os error {number})" in str(error) for number in full)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make the disk keep what was written: of a file its bytes, of a folder its names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, whole or absent: it is called PATH.part until the block has ended well."""
    aside = path.with_name(path.name + ".part")
    try:
        with aside.open("wb") as file:
            yield file
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(folder: Path, *, durable: bool = True) -> Iterator[Path]:
    """A new folder to write into; on success it gets a manifest and takes the place of `folder`, old or absent.

    What can be made again, and is checked before each use, need not be `durable`: after a power cut it may be damaged.
    """
    place = folder.resolve()  # a link stays a link: what it points to is replaced
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
        shutil.rmtree(aside, ignore_errors=True)  # after a success it is the old folder, or nothing


def put_in_place(aside: Path, folder: Path) -> None:
    """Rename `aside` to `folder`; an old folder of that name is exchanged in one step, so there is always one."""
    if not _renamed(aside, folder) and not _exchange(aside, folder):
        retired = folder.parent / f"{RETIRED}{folder.name}-{os.getpid()}"
        folder.rename(retired)
        aside.rename(folder)
        shutil.rmtree(retired, ignore_errors=True)


def _renamed(aside: Path, folder: Path) -> bool:
    """Whether the name was free. Another process may take it between the look and the act."""
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
    """Delete a folder so that at every moment it is whole, or gone by name."""
    retired = _retired_name(folder)
    folder.rename(retired)
    shutil.rmtree(retired, ignore_errors=True)


def _retired_name(folder: Path) -> Path:
    return folder.parent / f"{ASIDE}{folder.name}-retired-{os.getpid()}"


def clear_unfinished(parent: Path) -> list[Path]:
    """Delete what interrupted writers left below `parent`; the caller must own the place. Returns what was deleted."""
    for retired in sorted(parent.glob(f"{RETIRED}*")):
        name = retired.name.removeprefix(RETIRED).rpartition("-")[0]
        if not (parent / name).exists():  # stopped between two renames: the old folder is the only one that counts
            retired.rename(parent / name)
    unfinished = sorted([*parent.glob(f"{ASIDE}*"), *parent.glob(f"{RETIRED}*")])
    for path in unfinished:
        shutil.rmtree(path, ignore_errors=True)
    return unfinished


def write_manifest(folder: Path) -> None:
    hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in files_below(folder)}
    (folder / MANIFEST).write_bytes(_manifest_bytes(hashes))


def check_manifest(folder: Path) -> frozenset[str]:
    """The names that the folder lists; refused if any of these files is missing or differs from what was written."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{folder}: has no {MANIFEST}; it is not a folder that heedful wrote, or it was not finished")
    hashes = read_json(folder / MANIFEST).get("sha256")
    if not isinstance(hashes, dict):
        raise UserError(f"{folder / MANIFEST}: holds no list of files")
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
        found = sha256(path)
    except (OSError, ValueError, RuntimeError) as error:  # no permission; a name that no file can have; a loop of links
        raise UserError(f"{folder}: {name!r}, listed in {MANIFEST}, cannot be read: {error}") from None
    if found != expected:
        raise UserError(
            f"{path}: has changed since it was written (its SHA-256 is not the one in {MANIFEST}); "
            "copy the folder again, or restore this file"
        )


def _manifest_bytes(hashes: dict[str, str]) -> bytes:
    """One spelling only, so that not even a blank in it can change unnoticed."""
    return (json.dumps({"sha256": hashes}, indent=1, sort_keys=True) + "\n").encode()


def _refuse_foreign(folder: Path, place: Path) -> None:
    """A folder that is replaced loses all that is in it: so only one that was written here, or an empty one."""
    if place.exists() and not (place.is_dir() and ((place / MANIFEST).is_file() or not any(place.iterdir()))):
        raise UserError(
            f"{folder}: exists and is not a folder that heedful wrote; choose another name, or move it away"
        )


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step where the system can (Linux's renameat2); False where it cannot."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    at_current_folder, exchange = -100, 2
    return bool(libc.renameat2(at_current_folder, os.fsencode(a), at_current_folder, os.fsencode(b), exchange) == 0)
