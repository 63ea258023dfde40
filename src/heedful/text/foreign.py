"""The tokenizer files of a public checkpoint's folder, read and written."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from heedful.config import read_json
from heedful.errors import UserError
from heedful.text.foreign_added import ROLES, SPLIT, Given, merge_settings, numbered_tokens, read_roles
from heedful.text.foreign_build import (
    any_pieces,
    byte_level,
    llama_pieces,
    merges_of,
    own_symbols,
    pegasus_pieces,
    t5_pieces,
    word_piece,
)
from heedful.text.foreign_family import GENERAL, as_it_stands, family_of, has_unknown_rules, rebuilt
from heedful.text.foreign_own import own_content
from heedful.text.hf_tokenizer import MAX_JSON_BYTES, HFTokenizer, check_content, open_foreign
from heedful.text.marian_tokenizer import END, PAD, UNKNOWN, MarianTokenizer
from heedful.text.sentencepiece_model import MAX_MODEL_BYTES, SentencePieceInfo, probe_in_subprocess, read_model
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer, Tokenizers

CONTENT, ROLES_FILE, SETTINGS = "tokenizer.json", "special_tokens_map.json", "tokenizer_config.json"
ADDED, MODEL_SETTINGS = "added_tokens.json", "config.json"
WORDS, VOCABULARY, MERGES, TARGET_VOCABULARY = "vocab.txt", "vocab.json", "merges.txt", "target_vocab.json"
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
PIECES = ("spiece.model", "tokenizer.model", "sentencepiece.model")

_ENDS = "<|endoftext|>"
_SEQUENCE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_BART = {**_SEQUENCE, "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": "<mask>"}
_BERT = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip
# Family -> the special pieces of its class at Hugging Face, where no file says otherwise
ROLES_OF: dict[str, dict[str, str]] = {
    "bert": _BERT,
    "bart": _BART,
    "gpt2": {"bos_token": _ENDS, "eos_token": _ENDS, "unk_token": _ENDS},
    "llama": _SEQUENCE,
    "t5": {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    "pegasus": {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask_2>"},
}


def load_foreign(folder: Path, *, model_type: str) -> Tokenizers | None:
    """The tokenizers of a folder such as `save_pretrained` writes; None where it has no file of theirs."""
    if model_type == "marian":
        if not (folder / SOURCE_MODEL).is_file():
            return None
        _check_marian(folder)
        return read_marian(folder)
    tokenizer = _read(folder, model_type)
    return None if tokenizer is None else Tokenizers(source=tokenizer, target=tokenizer)


def export_foreign(tokenizers: Tokenizers, folder: Path, *, model_type: str) -> None:
    """Write tokenizers as `transformers` reads them, or a UserError: it has none like some of heedful's own."""
    tokenizer = tokenizers.source
    if isinstance(tokenizer, MarianTokenizer):
        write_marian(tokenizers, folder)
        return
    if isinstance(tokenizer, HFTokenizer):
        made = tokenizer.content, tokenizer.roles
        switches = _switches(tokenizer)
    else:
        own = own_content(tokenizer, model_type=model_type) if isinstance(tokenizer, SentencePieceTokenizer) else None
        if own is None or not tokenizers.joint:
            raise UserError("transformers has no tokenizer like this one of heedful's")
        made, switches = own, {}
    content, roles = made
    (folder / CONTENT).write_text(content, encoding="utf-8")
    write_json(folder / ROLES_FILE, roles)
    # The general class: those of a family build parts of their tokenizer anew and may not come to the same.
    write_json(folder / SETTINGS, {"tokenizer_class": "PreTrainedTokenizerFast", **roles, **switches})


def write_foreign(tokenizer: HFTokenizer, folder: Path) -> list[Path]:
    """The two files that hold all of it."""
    tokenizer.save(folder / CONTENT)
    write_json(folder / ROLES_FILE, {**tokenizer.roles, **_switches(tokenizer)})
    return [folder / CONTENT, folder / ROLES_FILE]


def read_foreign(folder: Path, *, probe: bool = True) -> HFTokenizer:
    """What `write_foreign` wrote."""
    where = folder / ROLES_FILE
    values = _small(where)
    roles = read_roles(values, where=str(where))
    given = Given(values=values, roles=roles, numbered={}, where=str(where))
    path = folder / CONTENT
    return open_foreign(_text(path), roles, splits_special=given.splits_special, where=str(path), probe=probe)


def read_marian(folder: Path, *, probe: bool = True) -> Tokenizers:
    """Both sides of a Marian model; one list of ids for both, or one for each."""
    ids = _ids(folder / VOCABULARY)
    target_ids = _ids(folder / TARGET_VOCABULARY) if (folder / TARGET_VOCABULARY).is_file() else ids
    models = [_bytes(folder / name) for name in (SOURCE_MODEL, TARGET_MODEL)]
    for name, model in zip((SOURCE_MODEL, TARGET_MODEL), models, strict=True):
        if probe:
            probe_in_subprocess(model, read_model(model, where=str(folder / name)), where=str(folder / name))
    return Tokenizers(
        source=MarianTokenizer(models[0], ids, where=str(folder / SOURCE_MODEL)),
        target=MarianTokenizer(models[1], target_ids, where=str(folder / TARGET_MODEL)),
    )


def write_marian(tokenizers: Tokenizers, folder: Path) -> list[Path]:
    source, target = tokenizers.source, tokenizers.target
    assert isinstance(source, MarianTokenizer) and isinstance(target, MarianTokenizer)
    source.save(folder / SOURCE_MODEL)
    target.save(folder / TARGET_MODEL)
    write_json(folder / VOCABULARY, source.ids)
    if source.ids == target.ids:
        return [folder / name for name in (SOURCE_MODEL, TARGET_MODEL, VOCABULARY)]
    write_json(folder / TARGET_VOCABULARY, target.ids)
    return [folder / name for name in (SOURCE_MODEL, TARGET_MODEL, VOCABULARY, TARGET_VOCABULARY)]


def write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(folder: Path, model_type: str) -> Tokenizer | None:
    config = _small(folder / SETTINGS)
    declared = config.get("tokenizer_class") or _small(folder / MODEL_SETTINGS).get("tokenizer_class")
    if not (folder / CONTENT).is_file():
        return _read_older(folder, model_type, config, declared)
    path = folder / CONTENT
    content = check_content(_text(path), where=str(path))
    values = json.loads(content)
    family = family_of(declared, model_type=model_type, content=content)
    rest = {name: value for name, value in config.items() if name not in ("add_bos_token", "add_eos_token")}
    given = _given(folder, rest, family, written=values.get("added_tokens") or ())  # the file says what marks it adds
    split = given.splits_special
    if family != GENERAL:
        return open_foreign(rebuilt(values, family, given), given.roles, splits_special=split, where=str(path))
    likely = {role: piece for role, piece in ROLES_OF.get(model_type, {}).items() if _has(content, piece)}
    roles = {**likely, **given.roles}
    return open_foreign(as_it_stands(values, given), roles, splits_special=split, where=str(path))


def _read_older(folder: Path, model_type: str, config: Mapping[str, Any], declared: object) -> Tokenizer | None:
    found = next((row for row in _BUILDERS if all((folder / name).is_file() for name in row[0])), None)
    if found is None:
        return None
    names, build = found
    if has_unknown_rules(declared):
        raise UserError(
            f"{folder}: its tokenizer is a {declared!r}, and heedful does not have the rules of that class. Save it as "
            f"{CONTENT}, if its class can; or convert the folder without {' and '.join(names)}: it then takes ids"
        )
    family = family_of(declared, model_type=model_type, content=None)
    given = _given(folder, config, family or model_type, written=())
    content = build(folder, family, given)
    return open_foreign(content, given.roles, splits_special=given.splits_special, where=str(folder))


def _given(folder: Path, config: Mapping[str, Any], family: str, *, written: Iterable[Mapping[str, Any]]) -> Given:
    """What the small files say, over what the class of the family says."""
    where = str(folder / SETTINGS)
    values = merge_settings(config, _small(folder / ROLES_FILE))
    named = read_roles(values, where=where)
    usual = {role: piece for role, piece in ROLES_OF.get(family, {}).items() if role not in values}
    return Given(
        values=values,
        roles={role: (usual | named)[role] for role in ROLES if role in usual | named},
        numbered=numbered_tokens(values, _small(folder / ADDED), written, where=where),
        where=where,
    )


def _check_marian(folder: Path) -> None:
    """Refuse what Marian's class at Hugging Face would do to a text, and this one does not."""
    given = _given(folder, _small(folder / SETTINGS), "marian", written=())
    what = f"{SPLIT!r} is true" if given.splits_special else None
    for role, piece in (("unk_token", UNKNOWN), ("eos_token", END), ("pad_token", PAD)):
        if given.roles.get(role, piece) != piece:
            what = what or f"{role!r} is {given.roles[role]!r}, where Marian has {piece!r}"
    for token in given.whole(given.additional()):
        if token["content"] not in (UNKNOWN, END, PAD):
            what = what or f"the piece {token['content'][:60]!r} was added to its vocabulary"
    if what is not None:
        raise UserError(
            f"{folder}: {what}, and heedful's tokenizer of Marian models cannot do that: texts would get other ids. "
            f"Convert the folder without {SOURCE_MODEL} and {TARGET_MODEL}: it then takes ids"
        )


def _switches(tokenizer: HFTokenizer) -> dict[str, bool]:
    """What stands beside the roles, where it is not as usual."""
    return {SPLIT: True} if tokenizer.splits_special else {}


def _small(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _has(content: str, piece: str) -> bool:
    """Whether a piece may be among those of a tokenizer.json: only then is it worth a part by default."""
    return json.dumps(piece, ensure_ascii=False) in content or json.dumps(piece) in content


def _from_words(folder: Path, family: str, given: Given) -> str:
    lines = _text(folder / WORDS).split("\n")  # a piece may hold U+2028 or a CR: nothing else ends a line
    vocabulary = {line: number for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    return word_piece(vocabulary, given)


def _from_merges(folder: Path, family: str, given: Given) -> str:
    vocabulary = _ids(folder / VOCABULARY)
    merges = []
    for number, line in enumerate(_text(folder / MERGES).split("\n"), start=1):
        if line.startswith("#version") or not line:
            continue
        parts = re.split(" ", line.rstrip("\r"))
        if len(parts) != 2:
            raise UserError(f"{folder / MERGES}:{number}: expected two pieces and a space, found {line[:60]!r}")
        merges.append((parts[0], parts[1]))
    return byte_level(vocabulary, merges, given)


def _from_pieces(name: str) -> Callable[[Path, str, Given], str]:
    def build(folder: Path, family: str, given: Given) -> str:
        facts = _facts(folder / name)
        if family == "t5":
            pieces = [*zip(facts.pieces, facts.scores, strict=True), *((piece, 0.0) for piece in given.sentinels())]
            return t5_pieces(pieces, facts.charsmap, given, additional=own_symbols(facts))
        if family == "pegasus":
            return pegasus_pieces(facts, given)
        if family != "llama":
            return any_pieces(facts, given)
        vocabulary = {piece: number for number, piece in enumerate(facts.pieces)}
        return llama_pieces(vocabulary, merges_of(vocabulary), given, additional=own_symbols(facts))

    return build


_BUILDERS = (
    *(((name,), _from_pieces(name)) for name in PIECES),
    ((VOCABULARY, MERGES), _from_merges),
    ((WORDS,), _from_words),
)


def _facts(path: Path) -> SentencePieceInfo:
    facts = read_model(_bytes(path), where=str(path))
    if facts.kind not in ("bpe", "unigram"):
        raise UserError(f"{path}: is a SentencePiece model of kind '{facts.kind}'; allowed: bpe, unigram")
    return facts


def _ids(path: Path) -> dict[str, Any]:
    _check_size(path, MAX_JSON_BYTES)
    return read_json(path)


def _text(path: Path) -> str:
    _check_size(path, MAX_JSON_BYTES)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start}: not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _bytes(path: Path) -> bytes:
    _check_size(path, MAX_MODEL_BYTES)
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _check_size(path: Path, most: int) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if size > most:
        raise UserError(f"{path}: {size:,} bytes; a tokenizer's file has at most {most:,}")
