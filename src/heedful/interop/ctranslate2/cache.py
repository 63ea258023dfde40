"""Converted models, kept: each is made once, beside its model or, where nothing may be written, in the user's cache.

    MODEL/.ctranslate2-<key>/   model.bin · config.json · vocabularies · facts.json · manifest.json

The key is a hash of the model's manifest, which has the SHA-256 of each of its files, and of CTranslate2's version: a
changed model has another key. Nothing here imports torch or, with a conversion already there, NumPy; the conversion
itself runs in a child process, unless it needs no torch either.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.atomic_io import MANIFEST, Unwritable, atomic_folder, check_manifest, delete_folder, sha256
from heedful.config import config_from_dict, read_json
from heedful.errors import Notice, UserError
from heedful.interop.ctranslate2.library import library
from heedful.models.model_info import is_builtin, refuse_other_formats
from heedful.text import Tokenizers, load_tokenizers
from heedful.text.tokenizer_files import OWN_FILES

if TYPE_CHECKING:
    from heedful.interop.ctranslate2.model_config import Ct2ModelConfig

PREFIX = ".ctranslate2-"
FOR_NOW = "heedful-"  # what a temporary folder is called
FACTS = "facts.json"
LAYOUT = 1  # raised when the same model would be written differently
MISTAKE, REFUSED = 1, 4  # exit codes of the child


@dataclass(frozen=True)
class ConversionInfo:
    """What a search must know of a model without opening it."""

    key: str  # of the model folder that it was made from
    source_vocab_size: int
    target_vocab_size: int
    n_positions: int | None = None  # no source and no translation may be longer
    learned_positions: bool = False  # the model itself has no more
    end_id: int = 3
    forbidden: tuple[int, ...] = ()  # ids that the model must never write
    tokenizers: dict[str, str] = field(
        default_factory=dict
    )  # file -> SHA-256, found sound when the model was converted


@dataclass(frozen=True)
class Converted:
    """A model folder and its conversion, which has been checked against its manifest."""

    model: Path
    folder: Path
    facts: ConversionInfo

    def load_tokenizers(self) -> Tokenizers:
        """The model's tokenizers, without trying them in a child process first, which takes half a second.

        That was done when the model was converted; the same bytes, by their SHA-256, are as harmless now.
        """
        known = all(sha256(self.model / name) == expected for name, expected in self.facts.tokenizers.items())
        return load_tokenizers(self.model, probe=not (self.facts.tokenizers and known))


def convert(model: str | Path, *, kept: bool = False) -> Converted:
    """The conversion of a model folder: the one that is kept, or a new one.

    Where none can be kept, as in a container that is read-only, it is made for this process alone; not if it must be
    `kept`.
    """
    model = Path(model)
    key = key_of(model)
    found = find_conversion(model)
    if found is not None:
        return found
    from heedful.interop.ctranslate2.spec import why_not_values

    reason = why_not_values(read_json(model / "config.json"))
    if reason is not None:
        raise refusal(model, reason)
    try:
        made = _make(model, key)
    except Unwritable as error:
        if kept:
            raise
        return _convert_to_temp(model, key, str(error))
    _remove_stale(model, key)
    return made


class NotConvertible(UserError):
    """CTranslate2 would not give the same results."""


def refusal(model: Path, reason: str) -> NotConvertible:
    return NotConvertible(
        f"{model}: CTranslate2 cannot run this model: {reason}. Use --engine torch, which runs every model"
    )


def key_of(model: Path) -> str:
    if not (model / MANIFEST).is_file():
        refuse_other_formats(model)
        raise UserError(f"{model}: has no {MANIFEST}; it is not a folder that heedful wrote, or it was not finished")
    parts = ((model / MANIFEST).read_bytes(), library().__version__.encode(), str(LAYOUT).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def user_cache() -> Path:
    """Where a user's programs keep what can be made again."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(os.devnull) / "heedful"  # where nothing is, and nothing can be made


def _places(model: Path, key: str) -> list[Path]:
    """Where a conversion may be, the one that is preferred first. Nothing is written into heedful's own folder."""
    beside, cached = model / f"{PREFIX}{key}", user_cache() / f"{PREFIX.lstrip('.')}{key}"
    may_write = os.access(model, os.W_OK | os.X_OK) and not is_builtin(model)
    return [beside, cached] if may_write else [cached, beside]


def find_conversion(model: Path) -> Converted | None:
    """The conversion that is kept; None if there is none, or it is damaged."""
    key = key_of(model)
    for folder in _places(model, key):
        with contextlib.suppress(UserError, OSError):  # damaged, or closed to us: as if it were not there
            if folder.is_dir():
                return _open(model, folder, key)
    return None


def _open(model: Path, folder: Path, key: str) -> Converted:
    check_manifest(folder)
    return _described(model, folder, key)


def _described(model: Path, folder: Path, key: str) -> Converted:
    facts = config_from_dict(ConversionInfo, read_json(folder / FACTS), where=str(folder / FACTS))
    if facts.key != key:
        raise UserError(f"{folder}: was made from another model")
    return Converted(model, folder, facts)


def _make(model: Path, key: str) -> Converted:
    """In the best place that can be written."""
    first, second = _places(model, key)
    try:
        return _make_in(first, model, key)
    except Unwritable:
        if first.parent != model:  # then the other would be in a folder that must stay as it is
            raise
        return _make_in(second, model, key)


def _make_in(folder: Path, model: Path, key: str) -> Converted:
    if folder.exists() and not (folder / MANIFEST).is_file():  # damaged: what is whole has one
        with contextlib.suppress(FileNotFoundError):  # another process did the same
            delete_folder(folder)
    # Its manifest is checked whenever it is opened, whatever became of it: so nobody need wait for the disk.
    with atomic_folder(folder, durable=False) as aside:
        _convert_into(aside, model)
    return _described(model, folder, key)


@functools.cache
def _convert_to_temp(model: Path, key: str, why: str) -> Converted:
    try:
        folder = Path(tempfile.mkdtemp(prefix=FOR_NOW))
    except OSError as error:
        raise NotConvertible(f"{why}; nor is there a temporary folder to convert it in: {error.strerror}") from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _tell(model, why)
    _convert_into(folder, model)
    return _described(model, folder, key)


@contextlib.contextmanager
def cache_for_children(model: Path) -> Iterator[dict[str, str]]:
    """The variables of processes that will open a model: where nothing can be kept, a cache that they share for now.
    They are killed in the end, and so could delete nothing themselves.
    """
    from heedful.interop.ctranslate2.spec import why_not_values

    first, second = _places(model, key_of(model))
    places = [first.parent, second.parent] if first.parent == model else [first.parent]
    is_kept = why_not_values(read_json(model / "config.json")) is not None or find_conversion(model) is not None
    if is_kept or any(map(_can_write, places)):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix=FOR_NOW, ignore_cleanup_errors=True) as folder:
        _tell(model, f"{first}: cannot be written")
        yield {"XDG_CACHE_HOME": folder}


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder):
            return True
    except OSError:
        return False


def _tell(model: Path, why: str) -> None:
    words = (
        f"{why}. So {model} is converted for CTranslate2 each time, in {tempfile.gettempdir()}, which takes a moment"
    )
    warnings.warn(Notice(f"{words}: let XDG_CACHE_HOME name a folder that can be written"), stacklevel=2)


def _convert_into(folder: Path, model: Path) -> None:
    if _may_run_here(model):
        from heedful.interop.ctranslate2.convert_process import convert_into

        convert_into(model, folder)
    else:
        _run_child(model, folder)


def _may_run_here(model: Path) -> bool:
    """A model that comes with heedful needs no torch. CTranslate2's own code would import it all the same, and is kept
    from that (`without_torch`) where no other thread can be about to import it.
    """
    return is_builtin(model) and ("torch" in sys.modules or threading.active_count() == 1)


def _run_child(model: Path, folder: Path) -> None:
    # -P: the working directory is not on the child's path, so that no file lying there is imported.
    command = [sys.executable, "-P", "-m", "heedful.interop.ctranslate2.convert_process", str(model), str(folder)]
    child = subprocess.run(command, capture_output=True, check=False)
    message = child.stderr.decode("utf-8", "replace").strip()
    if child.returncode in (MISTAKE, REFUSED):
        raise NotConvertible(message) if child.returncode == REFUSED else UserError(message)
    if child.returncode != 0:
        raise RuntimeError(f"the conversion of {model} ended with {child.returncode}:\n{message}")


def _remove_stale(model: Path, key: str) -> None:
    """Delete conversions of what the folder held before, or for another version of CTranslate2."""
    for folder in model.glob(f"{PREFIX}*"):
        if folder.name != f"{PREFIX}{key}" and (folder / FACTS).is_file():
            with contextlib.suppress(OSError):
                delete_folder(folder)


def facts_of(outline: "Ct2ModelConfig", key: str, model: Path) -> ConversionInfo:
    hashes = {name: sha256(model / name) for name in OWN_FILES if (model / name).is_file()}
    return ConversionInfo(
        key=key,
        source_vocab_size=outline.source_vocab_size,
        target_vocab_size=outline.target_vocab_size,
        n_positions=outline.n_positions,
        learned_positions=outline.positions == "learned",
        end_id=outline.special_ids.eos_id,
        forbidden=outline.special_ids.forbidden_ids,
        tokenizers=hashes,
    )
