"""Save and load the tokenizers of a model folder.

| files | tokenizers |
|---|---|
| `joint.spm` | heedful's own, one for both sides |
| `source.spm`, `target.spm` | heedful's own, one for each side |
| `tokenizer.json`, `special_tokens_map.json` | Hugging Face's, one for both sides |
| `source.spm`, `target.spm`, `vocab.json` and perhaps `target_vocab.json` | Marian's |

An .spm file is a SentencePiece model that other programs can read. heedful's settings are in a field of the file that
other programs skip.
"""

from pathlib import Path

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.errors import UserError
from heedful.text.hf_tokenizer import MAX_JSON_BYTES, HFTokenizer, load_hf_tokenizer, read_roles
from heedful.text.marian_tokenizer import (
    SOURCE,
    TARGET,
    TARGET_VOCABULARY,
    VOCABULARY,
    MarianTokenizer,
    read_marian,
    write_marian,
)
from heedful.text.sentencepiece_model import check_file_size, probe_in_subprocess, read_model, read_model_file
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizers

JOINT = "joint.spm"
OWN_FILES = (JOINT, SOURCE, TARGET)  # of heedful's own tokenizers; Marian's have two of these names, too
TOKENIZER_JSON, SPECIAL_TOKENS_MAP = "tokenizer.json", "special_tokens_map.json"
# All tokenizer files that a model folder can have. Its manifest must list each one in the folder.
TOKENIZER_FILES = (JOINT, SOURCE, TARGET, TOKENIZER_JSON, SPECIAL_TOKENS_MAP, VOCABULARY, TARGET_VOCABULARY)


def save_tokenizers(folder: str | Path, tokenizers: Tokenizers) -> list[Path]:
    """Write tokenizers into a folder, in place of its earlier ones, and return the paths of the files.

    >>> import tempfile
    >>> from heedful.text import TokenizerConfig, learn_tokenizers
    >>> tokenizers = learn_tokenizers(["A dog runs."], ["Ein Hund läuft."], TokenizerConfig(vocab_size=400))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = [path.name for path in save_tokenizers(folder, tokenizers)]
    ...     loaded = load_tokenizers(folder)
    >>> names, loaded.source.decode(loaded.source.encode("A dog runs."))
    (['joint.spm'], 'A dog runs.')
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        (folder / name).unlink(missing_ok=True)
    if isinstance(tokenizers.source, MarianTokenizer):
        return write_marian(tokenizers, folder)
    if isinstance(tokenizers.source, HFTokenizer):
        if not tokenizers.joint:
            raise UserError("a tokenizer of Hugging Face's serves both sides of a model; these are two tokenizers")
        return write_hf_tokenizer(tokenizers.source, folder)
    if tokenizers.joint:
        files = {JOINT: tokenizers.source}
    else:
        files = {SOURCE: tokenizers.source, TARGET: tokenizers.target}
    for name, tokenizer in files.items():
        tokenizer.save(folder / name)
    return [folder / name for name in files]


def has_tokenizers(folder: str | Path) -> bool:
    """Return whether a folder has tokenizer files for `load_tokenizers`. An image model has none."""
    return any((Path(folder) / name).exists() for name in (JOINT, SOURCE, TARGET, TOKENIZER_JSON))


def load_tokenizers(folder: str | Path, *, probe: bool = True) -> Tokenizers:
    """Read the tokenizers that `save_tokenizers` wrote into a folder; `probe` as in `load_tokenizer`."""
    folder = Path(folder)
    names = {name for name in TOKENIZER_FILES if (folder / name).exists()}
    if names == {JOINT}:
        joint = load_tokenizer(folder / JOINT, probe=probe)
        return Tokenizers(source=joint, target=joint)
    if names == {SOURCE, TARGET}:
        return Tokenizers(
            source=load_tokenizer(folder / SOURCE, probe=probe),
            target=load_tokenizer(folder / TARGET, probe=probe),
        )
    if names == {TOKENIZER_JSON, SPECIAL_TOKENS_MAP}:
        tokenizer = read_hf_tokenizer(folder, probe=probe)
        return Tokenizers(source=tokenizer, target=tokenizer)
    if names - {TARGET_VOCABULARY} == {SOURCE, TARGET, VOCABULARY}:
        return read_marian(folder, probe=probe)
    raise UserError(
        f"{folder}: expected {JOINT}, or {SOURCE} and {TARGET}, or {TOKENIZER_JSON} and {SPECIAL_TOKENS_MAP}; "
        f"found {', '.join(sorted(names)) or 'none of them'}"
    )


def load_tokenizer(path: str | Path, *, probe: bool = True) -> SentencePieceTokenizer:
    """Read one SentencePiece model, heedful's or another program's.

    A malicious model can crash the process that loads it. With `probe` a child process loads the model first, which
    takes 0.2 to 0.5 s. Leave the probe out only for files that this machine made and that have not changed since.
    """
    model = read_model_file(Path(path))
    if probe:
        probe_in_subprocess(model, read_model(model, where=str(path)), where=str(path))
    return SentencePieceTokenizer(model, where=str(path))


def write_hf_tokenizer(tokenizer: HFTokenizer, folder: Path) -> list[Path]:
    """Write a tokenizer of Hugging Face's as two files: tokenizer.json and its special tokens."""
    tokenizer.save(folder / TOKENIZER_JSON)
    switches = {"split_special_tokens": True} if tokenizer.split_special_tokens else {}
    write_json(folder / SPECIAL_TOKENS_MAP, {**tokenizer.roles, **switches})
    return [folder / TOKENIZER_JSON, folder / SPECIAL_TOKENS_MAP]


def read_hf_tokenizer(folder: Path, *, probe: bool = True) -> HFTokenizer:
    """Read the two files that `write_hf_tokenizer` wrote; `probe` as in `load_hf_tokenizer`."""
    path, where = folder / TOKENIZER_JSON, str(folder / SPECIAL_TOKENS_MAP)
    values = read_json(where)
    split = values.get("split_special_tokens", False)
    if type(split) is not bool:
        raise UserError(f"{where}: 'split_special_tokens' must be true or false, found {split!r}")
    return load_hf_tokenizer(
        read_tokenizer_json(path),
        read_roles(values, where=where),
        split_special_tokens=split,
        where=str(path),
        probe=probe,
    )


def read_tokenizer_json(path: Path) -> str:
    """Read the text of a tokenizer.json, if it is not larger than such files are."""
    check_file_size(path, MAX_JSON_BYTES)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start}: not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
