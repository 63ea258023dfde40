"""The manifest of prepared shards: what was made, from what, and the hash of every file. It is written last."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from heedful.config import Values, from_values, read_json, to_values
from heedful.data.streams import FileRecord, explain_full_disk
from heedful.errors import UserError

FORMAT = 1  # raise it when the files change their meaning: older shards are then built again
NAME = "manifest.json"


@dataclass(frozen=True)
class SideRecord:
    """What is known of one side."""

    dtype: str  # of the values: "<u2" or "<u4" for ids, "|u1" for text
    tokens: int
    unknown: int | None = None  # tokens outside the vocabulary; not counted where text is kept
    growth: float = 1.0  # sampling makes n ids growth x n on average,
    spread: float = 0.0  # with a standard deviation of spread x sqrt(n)


@dataclass(frozen=True)
class Manifest:
    format: int
    key: str  # the hash of corpus, tokenizers and options
    tokenizers: tuple[str, ...]  # fingerprints, source first
    examples: int
    keep_text: bool
    sides: dict[str, SideRecord]  # source, and target if there is one
    files: dict[str, FileRecord]


def file_names(side: str, *, keep_text: bool) -> tuple[str, ...]:
    """The values, the offsets and, beside text, the numbers of ids."""
    if keep_text:
        return f"{side}.text", f"{side}.offsets", f"{side}.lengths"
    return f"{side}.ids", f"{side}.offsets"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Aside, synced, then renamed: a manifest that can be seen is whole, and so are the files that it names."""
    values = to_values(manifest)
    text = json.dumps({"sha256": _digest(values)} | values, indent=2)
    aside = folder / f"{NAME}.tmp"
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise explain_full_disk(problem, aside) from None
    aside.replace(folder / NAME)
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of finished shards; UserError for anything else."""
    path = folder / NAME
    values = read_json(path)
    if values.pop("sha256", None) != _digest(values):
        raise UserError(f"{path}: damaged, or written by hand. Prepare the corpus again.")
    if values.get("format") != FORMAT:
        raise UserError(
            f"{path}: format {values.get('format')}, this heedful reads {FORMAT}. Prepare the corpus again."
        )
    manifest = from_values(Manifest, values, where=str(path))
    expected = {name for side in manifest.sides for name in file_names(side, keep_text=manifest.keep_text)}
    if set(manifest.files) != expected or "source" not in manifest.sides:
        raise UserError(f"{path}: names the files {sorted(manifest.files)}, expected {sorted(expected)}")
    return manifest


def check_file(path: Path, record: FileRecord, *, verify: bool) -> None:
    """The file is there with the size it had; with `verify`, with the very bytes."""
    size = path.stat().st_size if path.is_file() else None
    if size != record.bytes:
        found = "is missing" if size is None else f"has {size:,} bytes"
        raise UserError(f"{path}: {found}, expected {record.bytes:,} bytes. Prepare the corpus again.")
    if verify:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != record.sha256:
            raise UserError(f"{path}: its bytes changed since it was written (SHA-256). Prepare the corpus again.")


def sync_folder(folder: Path) -> None:
    """A rename or a new file is on the disk only when its folder is."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(values: Values) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
