"""Tokenizers on disk: `joint.spm`, or `source.spm` and `target.spm`; of public models `tokenizer.json`, or Marian's.

The first are plain SentencePiece models, which other programs read; heedful's settings are inside, where those do not
look. Beside `tokenizer.json` stands `special_tokens_map.json`. Marian's two models have their ids in `vocab.json`.
"""

from pathlib import Path

from heedful.errors import UserError
from heedful.text.foreign import (
    CONTENT,
    ROLES_FILE,
    SOURCE_MODEL,
    TARGET_MODEL,
    TARGET_VOCABULARY,
    VOCABULARY,
    read_foreign,
    read_marian,
    write_foreign,
    write_marian,
)
from heedful.text.hf_tokenizer import HFTokenizer
from heedful.text.marian_tokenizer import MarianTokenizer
from heedful.text.sentencepiece_model import MAX_MODEL_BYTES, probe_in_subprocess, read_model
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizers

JOINT, SOURCE, TARGET = "joint.spm", SOURCE_MODEL, TARGET_MODEL
# Whatever a folder may hold of tokenizers: of these a model folder must list what it has.
TOKENIZER_FILES = (JOINT, SOURCE, TARGET, CONTENT, ROLES_FILE, VOCABULARY, TARGET_VOCABULARY)


def save_tokenizers(folder: str | Path, tokenizers: Tokenizers) -> list[Path]:
    """Write the tokenizers into a folder, in place of those that were there; the paths of the files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        (folder / name).unlink(missing_ok=True)
    if isinstance(tokenizers.source, MarianTokenizer):
        return write_marian(tokenizers, folder)
    if isinstance(tokenizers.source, HFTokenizer):
        if not tokenizers.joint:
            raise UserError("a foreign tokenizer serves both sides of a model; these are two")
        return write_foreign(tokenizers.source, folder)
    sides = {SOURCE: tokenizers.source, TARGET: tokenizers.target}
    files = {JOINT: tokenizers.source} if tokenizers.joint else sides
    for name, tokenizer in files.items():
        tokenizer.save(folder / name)
    return [folder / name for name in files]


def has_tokenizers(folder: str | Path) -> bool:
    """Whether there is anything for `load_tokenizers`: a model of images has none."""
    return any((Path(folder) / name).exists() for name in (JOINT, SOURCE, TARGET, CONTENT))


def load_tokenizers(folder: str | Path, *, probe: bool = True) -> Tokenizers:
    """Read what `save_tokenizers` wrote; `trusted` as in `load_tokenizer`."""
    folder = Path(folder)
    found = {name for name in TOKENIZER_FILES if (folder / name).exists()}
    if found == {JOINT}:
        joint = load_tokenizer(folder / JOINT, probe=probe)
        return Tokenizers(source=joint, target=joint)
    if found == {SOURCE, TARGET}:
        return Tokenizers(
            source=load_tokenizer(folder / SOURCE, probe=probe),
            target=load_tokenizer(folder / TARGET, probe=probe),
        )
    if found == {CONTENT, ROLES_FILE}:
        foreign = read_foreign(folder, probe=probe)
        return Tokenizers(source=foreign, target=foreign)
    if found - {TARGET_VOCABULARY} == {SOURCE, TARGET, VOCABULARY}:
        return read_marian(folder, probe=probe)
    raise UserError(
        f"{folder}: expected {JOINT}, or {SOURCE} and {TARGET}, or {CONTENT} and {ROLES_FILE}; "
        f"found {', '.join(sorted(found)) or 'none of them'}"
    )


def load_tokenizer(path: str | Path, *, probe: bool = True) -> SentencePieceTokenizer:
    """Read one SentencePiece model, heedful's or another's.

    `trusted` says that this machine made the file, and that nobody changed it since. Otherwise a child process tries
    it first, which takes some tenths of a second: a model can be made to crash the process that loads it.
    """
    model = _read(Path(path))
    if probe:
        probe_in_subprocess(model, read_model(model, where=str(path)), where=str(path))
    return SentencePieceTokenizer(model, where=str(path))


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    size = path.stat().st_size
    if size > MAX_MODEL_BYTES:
        raise UserError(f"{path}: {size:,} bytes; a SentencePiece model has at most {MAX_MODEL_BYTES:,}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
