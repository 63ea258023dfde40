"""Converted models, kept in the model's folder or, if that is not writable, in the user's cache.

    MODEL/.ctranslate2-<key>/   model.bin · config.json · vocabularies · facts.json · manifest.json

The key is a hash of the model's manifest, which has the SHA-256 of each file, and of CTranslate2's version: a changed
model has another key. A child process makes the conversion (`convert_process`). Nothing here imports torch, nor NumPy
if there is a conversion already.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.atomic_io import MANIFEST, Unwritable, atomic_folder, check_manifest, delete_folder, sha256
from heedful.config import config_from_dict, read_json
from heedful.errors import Notice, UserError
from heedful.interop.ctranslate2.conversion import (
    EXIT_NOT_CONVERTIBLE,
    EXIT_USER_ERROR,
    INFO,
    ConversionInfo,
    NotConvertible,
    not_convertible,
)
from heedful.interop.ctranslate2.library import library
from heedful.models.model_info import is_builtin, refuse_other_formats
from heedful.text import Tokenizers, load_tokenizers

PREFIX = ".ctranslate2-"
TEMPORARY_PREFIX = "heedful-"
LAYOUT = 1  # to be raised when the same model is written differently


@dataclass(frozen=True)
class Converted:
    """A model folder and its conversion, which has been checked against its manifest."""

    model: Path
    folder: Path
    info: ConversionInfo

    def load_tokenizers(self) -> Tokenizers:
        """Load the model's tokenizers, without a probe in a child process if the files have not changed.

        The probe takes half a second. The conversion made it and kept the SHA-256 hashes of the files.
        """
        unchanged = all(sha256(self.model / name) == expected for name, expected in self.info.tokenizers.items())
        return load_tokenizers(self.model, probe=not (self.info.tokenizers and unchanged))


def convert(model: str | Path, *, kept: bool = False) -> Converted:
    """Return the conversion of a model folder; make it if there is none.

    If no place to keep it is writable, as in a read-only container, the conversion is made for this process alone, or,
    with `kept`, a UserError is raised.
    """
    model = Path(model)
    key = key_of(model)
    kept_conversion = find_conversion(model)
    if kept_conversion is not None:
        return kept_conversion
    from heedful.interop.ctranslate2.model_config import why_not
    from heedful.models.configs import read_config

    reason = why_not(read_config(model)[1])
    if reason is not None:
        raise not_convertible(model, reason)
    try:
        converted = _make(model, key)
    except Unwritable as error:
        if kept:
            raise
        return _convert_to_temp(model, key, str(error))
    _remove_stale(model, key)
    return converted


def key_of(model: Path) -> str:
    """Return the key of a model's conversion: a hash of its manifest and of CTranslate2's version."""
    if not (model / MANIFEST).is_file():
        refuse_other_formats(model)
        raise UserError(f"{model}: has no {MANIFEST}; heedful did not write this folder, or did not finish it")
    parts = ((model / MANIFEST).read_bytes(), library().__version__.encode(), str(LAYOUT).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def user_cache() -> Path:
    """Return the folder of heedful's files in the user's cache; it may not exist."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"
    except RuntimeError:  # a user without a home folder, as in some containers
        return Path(os.devnull) / "heedful"  # nothing exists below this path, and nothing can be written there


def find_conversion(model: Path) -> Converted | None:
    """Return the conversion that is kept; None if there is none, or a damaged one."""
    key = key_of(model)
    for folder in _places(model, key):
        with contextlib.suppress(UserError, OSError):  # a damaged or unreadable one counts as absent
            if folder.is_dir():
                check_manifest(folder)
                return _opened(model, folder, key)
    return None


@contextlib.contextmanager
def cache_for_children(model: Path) -> Iterator[dict[str, str]]:
    """Yield environment variables for child processes that are going to open a model.

    If no conversion can be kept, the children share a temporary cache, which is deleted in the end; they are killed and
    so cannot delete it themselves.
    """
    from heedful.interop.ctranslate2.model_config import why_not
    from heedful.models.configs import read_config

    first, second = _places(model, key_of(model))
    folders = [first.parent, second.parent] if first.parent == model else [first.parent]
    needs_none = why_not(read_config(model)[1]) is not None or find_conversion(model) is not None
    if needs_none or any(map(_is_writable, folders)):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, ignore_cleanup_errors=True) as folder:
        _warn_of_temporary(model, f"{first}: cannot be written")
        yield {"XDG_CACHE_HOME": folder}


def _places(model: Path, key: str) -> list[Path]:
    """Return where a conversion may be, the preferred place first. Nothing is written into heedful's own package."""
    beside, cached = model / f"{PREFIX}{key}", user_cache() / f"{PREFIX.lstrip('.')}{key}"
    may_write = os.access(model, os.W_OK | os.X_OK) and not is_builtin(model)
    return [beside, cached] if may_write else [cached, beside]


def _opened(model: Path, folder: Path, key: str) -> Converted:
    info = config_from_dict(ConversionInfo, read_json(folder / INFO), where=str(folder / INFO))
    if info.key != key:
        raise UserError(f"{folder}: was made from another model")
    return Converted(model, folder, info)


def _make(model: Path, key: str) -> Converted:
    """Convert into the first place that is writable."""
    first, second = _places(model, key)
    try:
        return _make_in(first, model, key)
    except Unwritable:
        if first.parent != model:  # the second place is then a model folder that must not change
            raise
        return _make_in(second, model, key)


def _make_in(folder: Path, model: Path, key: str) -> Converted:
    if folder.exists() and not (folder / MANIFEST).is_file():  # damaged: a complete one has a manifest
        with contextlib.suppress(FileNotFoundError):  # another process deletes it at the same time
            delete_folder(folder)
    # The manifest is checked each time the conversion is opened, so there is no need to wait for the disk.
    with atomic_folder(folder, durable=False) as aside:
        _convert_into(aside, model, key)
    return _opened(model, folder, key)


@functools.cache
def _convert_to_temp(model: Path, key: str, why: str) -> Converted:
    try:
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
    except OSError as error:
        raise NotConvertible(
            f"{why}; and a temporary folder for the conversion cannot be made: {error.strerror}"
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _warn_of_temporary(model, why)
    _convert_into(folder, model, key)
    return _opened(model, folder, key)


def _warn_of_temporary(model: Path, why: str) -> None:
    message = (
        f"{why}. So {model} is converted for CTranslate2 each time, in {tempfile.gettempdir()}, which takes a moment. "
        "Set XDG_CACHE_HOME to a writable folder to keep the conversion"
    )
    warnings.warn(Notice(message), stacklevel=2)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder):
            return True
    except OSError:
        return False


def _convert_into(folder: Path, model: Path, key: str) -> None:
    if _may_run_here(model):
        from heedful.interop.ctranslate2.convert_process import convert_into

        convert_into(model, folder, key=key)
    else:
        _run_child(model, folder, key)


def _may_run_here(model: Path) -> bool:
    """Return whether a conversion can run in this process without importing torch.

    Built-in models need no torch. CTranslate2's own code would import it all the same; `without_torch` prevents that,
    if no other thread can be importing torch at the same time.
    """
    return is_builtin(model) and ("torch" in sys.modules or threading.active_count() == 1)


def _run_child(model: Path, folder: Path, key: str) -> None:
    # -P: the working directory is not on the child's path, so that no file lying there is imported.
    program = [sys.executable, "-P", "-m", "heedful.interop.ctranslate2.convert_process"]
    child = subprocess.run([*program, str(model), str(folder), key], capture_output=True, check=False)
    message = child.stderr.decode("utf-8", "replace").strip()
    if child.returncode == EXIT_NOT_CONVERTIBLE:
        raise NotConvertible(message)
    if child.returncode == EXIT_USER_ERROR:
        raise UserError(message)
    if child.returncode != 0:
        raise RuntimeError(f"the conversion of {model} ended with exit code {child.returncode}:\n{message}")


def _remove_stale(model: Path, key: str) -> None:
    """Delete conversions of earlier files of the model, or for another version of CTranslate2."""
    for folder in model.glob(f"{PREFIX}*"):
        if folder.name != f"{PREFIX}{key}" and (folder / INFO).is_file():
            with contextlib.suppress(OSError):
                delete_folder(folder)
