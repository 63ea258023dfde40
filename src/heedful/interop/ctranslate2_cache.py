"""Converted models, kept: each is made once, beside its model or, where nothing may be written, in the user's cache.

    MODEL/.ctranslate2-<key>/   model.bin · config.json · vocabularies · facts.json · manifest.json

The key is a hash of the model's manifest, which has the SHA-256 of each of its files, and of CTranslate2's version: a
changed model has another key. Nothing here imports torch or, with a conversion already there, NumPy; the conversion
itself runs in a child process, unless it needs no torch either.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.config import from_values, read_json
from heedful.errors import UserError
from heedful.files import MANIFEST, check_manifest, folder_aside, retire, sha256
from heedful.interop.ctranslate2_library import library
from heedful.models.builtin import is_builtin
from heedful.text import Tokenizers, load_tokenizers
from heedful.text.folder import JOINT, SOURCE, TARGET

if TYPE_CHECKING:
    from heedful.interop.ctranslate2_outline import Outline

PREFIX = ".ctranslate2-"
FACTS = "facts.json"
LAYOUT = 1  # raised when the same model would be written differently
MISTAKE, REFUSED = 1, 4  # exit codes of the child


@dataclass(frozen=True)
class Facts:
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
    facts: Facts

    def load_tokenizers(self) -> Tokenizers:
        """The model's tokenizers, without trying them in a child process first, which takes half a second.

        That was done when the model was converted; the same bytes, by their SHA-256, are as harmless now.
        """
        known = all(sha256(self.model / name) == expected for name, expected in self.facts.tokenizers.items())
        return load_tokenizers(self.model, trusted=bool(self.facts.tokenizers) and known)


def convert(model: str | Path) -> Converted:
    """The conversion of a model folder: the one that is kept, or a new one."""
    model = Path(model)
    key = key_of(model)
    found = find_conversion(model)
    if found is not None:
        return found
    from heedful.interop.ctranslate2 import why_not_values

    reason = why_not_values(read_json(model / "config.json"))
    if reason is not None:
        raise refusal(model, reason)
    made = _make(model, key)
    _forget_others(model, key)
    return made


class NotConvertible(UserError):
    """CTranslate2 would not give the same results."""


def refusal(model: Path, reason: str) -> NotConvertible:
    return NotConvertible(
        f"{model}: CTranslate2 cannot run this model: {reason}. Use --engine torch, which runs every model"
    )


def key_of(model: Path) -> str:
    if not (model / MANIFEST).is_file():
        raise UserError(f"{model}: has no {MANIFEST}; it is not a folder that heedful wrote, or it was not finished")
    parts = ((model / MANIFEST).read_bytes(), library().__version__.encode(), str(LAYOUT).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def user_cache() -> Path:
    """Where a user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"


def _places(model: Path, key: str) -> list[Path]:
    """Where a conversion may be, the one that is preferred first. Nothing is written into heedful's own folder."""
    beside, cached = model / f"{PREFIX}{key}", user_cache() / f"{PREFIX.lstrip('.')}{key}"
    may_write = os.access(model, os.W_OK | os.X_OK) and not is_builtin(model)
    return [beside, cached] if may_write else [cached, beside]


def find_conversion(model: Path) -> Converted | None:
    """The conversion that is kept; None if there is none, or it is damaged."""
    key = key_of(model)
    for folder in _places(model, key):
        if folder.is_dir():
            with contextlib.suppress(UserError):  # damaged: as if it were not there, and made again
                return _open(model, folder, key)
    return None


def _open(model: Path, folder: Path, key: str) -> Converted:
    check_manifest(folder)
    return _described(model, folder, key)


def _described(model: Path, folder: Path, key: str) -> Converted:
    facts = from_values(Facts, read_json(folder / FACTS), where=str(folder / FACTS))
    if facts.key != key:
        raise UserError(f"{folder}: was made from another model")
    return Converted(model, folder, facts)


def _make(model: Path, key: str) -> Converted:
    folder, _ = _places(model, key)
    if folder.exists() and not (folder / MANIFEST).is_file():  # damaged: what is whole has one
        with contextlib.suppress(FileNotFoundError):  # another process did the same
            retire(folder)
    # Its manifest is checked whenever it is opened, whatever became of it: so nobody need wait for the disk.
    with folder_aside(folder, durable=False) as aside:
        if _may_run_here(model):
            from heedful.interop.ctranslate2_child import convert_into

            convert_into(model, aside)
        else:
            _run_child(model, aside)
    return _described(model, folder, key)


def _may_run_here(model: Path) -> bool:
    """A model that comes with heedful needs no torch. CTranslate2's own code would import it all the same, and is kept
    from that (`without_torch`) where no other thread can be about to import it.
    """
    return is_builtin(model) and ("torch" in sys.modules or threading.active_count() == 1)


def _run_child(model: Path, folder: Path) -> None:
    # -P: the working directory is not on the child's path, so that no file lying there is imported.
    command = [sys.executable, "-P", "-m", "heedful.interop.ctranslate2_child", str(model), str(folder)]
    child = subprocess.run(command, capture_output=True, check=False)
    message = child.stderr.decode("utf-8", "replace").strip()
    if child.returncode in (MISTAKE, REFUSED):
        raise NotConvertible(message) if child.returncode == REFUSED else UserError(message)
    if child.returncode != 0:
        raise RuntimeError(f"the conversion of {model} ended with {child.returncode}:\n{message}")


def _forget_others(model: Path, key: str) -> None:
    """Delete conversions of what the folder held before, or for another version of CTranslate2."""
    for folder in model.glob(f"{PREFIX}*"):
        if folder.name != f"{PREFIX}{key}" and (folder / FACTS).is_file():
            with contextlib.suppress(OSError):
                retire(folder)


def facts_of(outline: "Outline", key: str, model: Path) -> Facts:
    hashes = {name: sha256(model / name) for name in (JOINT, SOURCE, TARGET) if (model / name).is_file()}
    return Facts(
        key=key,
        source_vocab_size=outline.source_vocab_size,
        target_vocab_size=outline.target_vocab_size,
        n_positions=outline.n_positions,
        learned_positions=outline.positions == "learned",
        end_id=outline.marks.end_id,
        forbidden=outline.marks.forbidden,
        tokenizers=hashes,
    )
