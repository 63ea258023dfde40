"""Read the tokenizer of a Hugging Face checkpoint, for `heedful convert`.

`transformers` reads the folder, with `AutoTokenizer.from_pretrained`, without remote code and without the network.
heedful keeps the resulting tokenizer.json and the special tokens, so that a converted model needs the package
`tokenizers` alone. Marian's tokenizer is SentencePiece with ids of its own (`text.marian_tokenizer`); `transformers`
only tells whether the folder asks for more than that.

Before `transformers` reads a file, heedful checks its size and content, and a child process tries it.
"""

import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.config import read_json
from heedful.errors import MissingExtra, UserError
from heedful.models.bert import BertConfig
from heedful.models.model_io import check_vocabulary
from heedful.text import SPECIAL_PIECES, SentencePieceTokenizer, Tokenizer, Tokenizers, load_tokenizer
from heedful.text.hf_tokenizer import (
    MAX_JSON_BYTES,
    ROLES,
    HFTokenizer,
    check_tokenizer_json,
    load_hf_tokenizer,
    probe_tokenizer_json,
)
from heedful.text.marian_tokenizer import END, PAD, SOURCE, TARGET, TARGET_VOCABULARY, UNKNOWN, VOCABULARY, read_marian
from heedful.text.sentencepiece_model import check_file_size, probe_in_subprocess, read_model, read_model_file
from heedful.text.tokenizer_files import JOINT, SPECIAL_TOKENS_MAP, TOKENIZER_JSON, read_tokenizer_json

SETTINGS, ADDED_TOKENS, MERGES, WORDS = "tokenizer_config.json", "added_tokens.json", "merges.txt", "vocab.txt"
SENTENCEPIECE_FILES = ("spiece.model", "tokenizer.model", "sentencepiece.model")
# Each row is enough for a tokenizer; `transformers` takes the first that a folder has.
VOCABULARY_FILES = ((TOKENIZER_JSON,), *((name,) for name in SENTENCEPIECE_FILES), (VOCABULARY, MERGES), (WORDS,))
OTHER_FILES = (SETTINGS, SPECIAL_TOKENS_MAP, ADDED_TOKENS)

_END_OF_TEXT = "<|endoftext|>"
_SEQUENCE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
# Model type -> the special tokens of its own tokenizer class. They count if a folder names the general class, which has
# no special tokens of its own, and the vocabulary has the piece.
USUAL_ROLES: dict[str, dict[str, str]] = {
    "bert": {
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
    },
    "bart": {**_SEQUENCE, "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": "<mask>"},
    "gpt2": {"bos_token": _END_OF_TEXT, "eos_token": _END_OF_TEXT, "unk_token": _END_OF_TEXT},
    "llama": _SEQUENCE,
    "t5": {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    "pegasus": {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask_2>"},
}  # fmt: skip

# The special tokens that a model which generates text can do without.
OPTIONAL_ROLES = ("mask_token", "pad_token")


def import_tokenizers(folder: Path, *, model_type: str) -> Tokenizers | None:
    """Read the tokenizers of a checkpoint's folder, or return None if it has no tokenizer files.

    If heedful wrote the folder, the tokenizers are heedful's own, as they were before the export.
    """
    if (folder / JOINT).is_file() and not (folder / VOCABULARY).is_file():
        joint = load_tokenizer(folder / JOINT)
        return Tokenizers(source=joint, target=joint)
    if model_type in ("marian", "pegasus"):
        own = _import_own_from_marian(folder)
        if own is not None:
            return own
    if model_type == "marian":
        return _import_marian(folder) if (folder / SOURCE).is_file() else None
    tokenizer = _import_hf_tokenizer(folder, model_type)
    return None if tokenizer is None else Tokenizers(source=tokenizer, target=tokenizer)


def fit_to_model(tokenizers: Tokenizers, config: Any, folder: Path) -> Tokenizers:
    """Return the tokenizers without special tokens beyond the model's embedding, such as bart-large-cnn's <mask>.

    Any other difference between the tokenizers and the model's vocabulary is a UserError.
    """
    n_rows = getattr(config, "vocab_size", None)
    if n_rows is not None and isinstance(tokenizers.source, HFTokenizer):
        # BERT fills in masked tokens and so needs its mask.
        optional = () if isinstance(config, BertConfig) else OPTIONAL_ROLES
        tokenizer, dropped = drop_tokens_beyond_embedding(
            tokenizers.source, n_rows, optional_roles=optional, where=str(folder)
        )
        if dropped:
            warnings.warn(
                f"{folder}: the model's embedding has {n_rows:,} rows, so these special tokens of the tokenizer are "
                f"left out: {', '.join(dropped)}",
                stacklevel=3,
            )
        tokenizers = Tokenizers(source=tokenizer, target=tokenizer)
    check_vocabulary(folder, config, tokenizers)
    return tokenizers


def drop_tokens_beyond_embedding(
    tokenizer: HFTokenizer, n_rows: int, *, optional_roles: Sequence[str] = OPTIONAL_ROLES, where: str
) -> tuple[HFTokenizer, list[str]]:
    """Return the tokenizer without added tokens whose id has no row in the model's embedding, and these tokens.

    Some public tokenizers have such tokens: bart-large-cnn was fine-tuned without a row for its <mask>. A piece of the
    vocabulary itself, or a special token whose role is not in `optional_roles`, is a UserError.
    """
    values = json.loads(tokenizer.content)
    beyond = {piece: id for piece, id in _ids_of(values).items() if id >= n_rows}
    if not beyond:
        return tokenizer, []
    added = {token["content"] for token in values["added_tokens"] or []}
    required = {piece for role, piece in tokenizer.roles.items() if role not in optional_roles}
    for piece, id in beyond.items():
        if piece not in added or piece in required:
            raise UserError(
                f"{where}: the tokenizer's piece {piece!r} has the id {id:,}, but config.json has 'vocab_size' "
                f"{n_rows:,}: the model has no row for it. The tokenizer belongs to another model; copy this model's"
            )
    roles = {role: piece for role, piece in tokenizer.roles.items() if piece not in beyond}
    content = json.dumps(_without_pieces(values, set(beyond)), ensure_ascii=False)
    return HFTokenizer(content, roles, tokenizer.split_special_tokens), list(beyond)


def _import_hf_tokenizer(folder: Path, model_type: str) -> HFTokenizer | None:
    names = next((row for row in VOCABULARY_FILES if all((folder / name).is_file() for name in row)), None)
    if names is None:
        return None
    _check_files(folder, names)
    theirs = _auto_tokenizer(folder)
    backend = getattr(theirs, "backend_tokenizer", None)
    if backend is None:
        raise UserError(
            f"{folder}: its tokenizer is a {type(theirs).__name__}, which is Python code that no {TOKENIZER_JSON} can "
            f"describe. Convert a copy of the folder without {' and '.join(names)}: the model then takes ids"
        )
    content = _exact_scores(backend.to_str(), folder)
    roles = {role: str(piece) for role, piece in theirs.special_tokens_map.items() if role in ROLES}
    if type(theirs).__name__ in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        vocabulary = theirs.get_vocab()
        usual = {role: piece for role, piece in USUAL_ROLES.get(model_type, {}).items() if piece in vocabulary}
        roles = usual | roles
    return load_hf_tokenizer(
        content, roles, split_special_tokens=bool(theirs.split_special_tokens), where=str(folder / names[0])
    )


def _exact_scores(content: str, folder: Path) -> str:
    """Return the folder's own tokenizer.json if it differs from `content` only in the rounding of scores.

    `tokenizers` reads some numbers with an error in the last bit. With the exact numbers, a tokenizer that is exported
    and imported again keeps its fingerprint.
    """
    path = folder / TOKENIZER_JSON
    if not path.is_file():
        return content
    own = check_tokenizer_json(read_tokenizer_json(path), where=str(path))
    checked = check_tokenizer_json(content, where=str(path))
    return own if _nearly_equal(json.loads(own), json.loads(checked)) else content


def _nearly_equal(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal up to the rounding of numbers."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_nearly_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_nearly_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12)
    return bool(a == b)


def _check_files(folder: Path, names: Sequence[str]) -> None:
    """Refuse files that are too large, damaged or dangerous, before `transformers` loads them into this process."""
    for name in (*names, *(name for name in OTHER_FILES if (folder / name).is_file())):
        path = folder / name
        if name == TOKENIZER_JSON:
            probe_tokenizer_json(check_tokenizer_json(read_tokenizer_json(path), where=str(path)), where=str(path))
        elif name in SENTENCEPIECE_FILES:
            model = read_model_file(path)
            info = read_model(model, where=str(path))
            if info.kind not in ("bpe", "unigram"):
                raise UserError(f"{path}: is a SentencePiece model of kind '{info.kind}'; allowed: bpe, unigram")
            probe_in_subprocess(model, info, where=str(path))
        else:
            check_file_size(path, MAX_JSON_BYTES)
            if path.suffix == ".json":
                read_json(path)


def _auto_tokenizer(folder: Path) -> Any:
    """Return the tokenizer that `transformers` makes of a folder."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtra("Reading the tokenizer of a Hugging Face checkpoint", "hf") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the recommendation to install sacremoses
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever the code of a tokenizer class raises
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        names = {name for row in VOCABULARY_FILES for name in row} | {SOURCE, TARGET, *OTHER_FILES}
        files = sorted(name for name in names if (folder / name).is_file())
        raise UserError(
            f"{folder}: transformers cannot read its tokenizer ({', '.join(files)}): {reason}. Copy these files "
            "again, or convert a copy of the folder without them: the model then takes ids"
        ) from None


def _import_marian(folder: Path) -> Tokenizers:
    """Read Marian's tokenizers, unless the folder asks for more than their SentencePiece models and ids do."""
    tokenizers = read_marian(folder)
    for name in OTHER_FILES:
        if (folder / name).is_file():
            check_file_size(folder / name, MAX_JSON_BYTES)
    theirs = _auto_tokenizer(folder)
    reasons = {"'split_special_tokens' is true": bool(theirs.split_special_tokens)}
    for role, piece in (("unk_token", UNKNOWN), ("eos_token", END), ("pad_token", PAD)):
        theirs_piece = str(getattr(theirs, role))
        reasons[f"'{role}' is {theirs_piece!r}, and Marian's is {piece!r}"] = theirs_piece != piece
    for token in theirs.added_tokens_decoder.values():
        reasons[f"the piece {token.content[:60]!r} was added to its vocabulary"] = token.content not in (
            UNKNOWN,
            END,
            PAD,
        )
    reason = next((reason for reason, applies in reasons.items() if applies), None)
    if reason is not None:
        raise UserError(
            f"{folder}: {reason}, which heedful's tokenizer of Marian models does not support: texts would get other "
            f"ids. Convert a copy of the folder without {SOURCE} and {TARGET}: the model then takes ids"
        )
    return tokenizers


def _import_own_from_marian(folder: Path) -> Tokenizers | None:
    """Read heedful's own tokenizers from the files of a Marian folder.

    Returns None unless the special tokens are heedful's and each id equals the index in the SentencePiece model. In the
    public OPUS-MT models neither holds.
    """
    if not all((folder / name).is_file() for name in (SOURCE, TARGET, VOCABULARY)):
        return None
    separate = (folder / TARGET_VOCABULARY).is_file()
    vocabularies = [read_json(folder / name) for name in (VOCABULARY, TARGET_VOCABULARY if separate else VOCABULARY)]
    if any([vocabulary.get(piece) for piece in SPECIAL_PIECES] != [0, 1, 2, 3] for vocabulary in vocabularies):
        return None
    source, target = load_tokenizer(folder / SOURCE), load_tokenizer(folder / TARGET)
    if source.model == target.model:
        target = source
    for tokenizer, vocabulary in zip((source, target), vocabularies, strict=True):
        if vocabulary != {piece: id for id, piece in enumerate(sentencepiece_pieces(tokenizer))}:
            return None
    return Tokenizers(source=source, target=target)


def sentencepiece_pieces(tokenizer: Tokenizer) -> list[str]:
    """Return the pieces as the SentencePiece file has them. A word-level tokenizer stores "word▁" as "▁word"."""
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return read_model(tokenizer.model, where="tokenizer").pieces


def _ids_of(values: dict[str, Any]) -> dict[str, int]:
    """Map every piece of a tokenizer.json to its id."""
    vocabulary = values["model"]["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of piece and score
        vocabulary = {piece: id for id, (piece, _) in enumerate(vocabulary)}
    return {**vocabulary, **{token["content"]: token["id"] for token in values["added_tokens"] or []}}


def _without_pieces(values: dict[str, Any], pieces: set[str]) -> dict[str, Any]:
    vocabulary = values["model"]["vocab"]
    if isinstance(vocabulary, list):
        kept: Any = [pair for pair in vocabulary if pair[0] not in pieces]
    else:
        kept = {piece: id for piece, id in vocabulary.items() if piece not in pieces}
    added = [token for token in values["added_tokens"] if token["content"] not in pieces]
    return {**values, "added_tokens": added, "model": {**values["model"], "vocab": kept}}
