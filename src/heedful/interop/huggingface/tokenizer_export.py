"""Write tokenizers as `transformers` reads them.

A converted tokenizer is written as it came. heedful's own become `MarianTokenizer`'s files for Marian and Pegasus, and
a tokenizer.json for other model types, if its rules can be expressed there.
"""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.errors import UserError
from heedful.interop.huggingface.tokenizer_import import SETTINGS, sentencepiece_pieces
from heedful.models.model_info import CONFIG
from heedful.text import MASK_PIECE, SPECIAL_PIECES, SentencePieceTokenizer, Tokenizers, save_tokenizers
from heedful.text.hf_tokenizer import HFTokenizer
from heedful.text.marian_tokenizer import (
    SOURCE,
    TARGET,
    TARGET_VOCABULARY,
    VOCABULARY,
    MarianTokenizer,
    write_marian,
)
from heedful.text.sentencepiece_model import CONTROL
from heedful.text.sentencepiece_tokenizer import MARK
from heedful.text.tokenizer_files import JOINT, write_hf_tokenizer

PAD, UNKNOWN, START, END = SPECIAL_PIECES
# Model type -> the roles of the special tokens that its tokenizer puts before and after a text.
AROUND_TEXT = {"bert": ("bos_token", "eos_token"), "gpt2": ("bos_token", None), "llama": ("bos_token", None)}


def export_tokenizers(tokenizers: Tokenizers, folder: Path, *, model_type: str) -> None:
    """Write the tokenizers of a model into a folder, in the format of `transformers`.

    heedful's own tokenizers are also written as heedful's files, so that the folder can be imported again. If
    `transformers` has no tokenizer with the same ids, a warning says so, and the exported model takes ids only.
    """
    if not isinstance(tokenizers.source, SentencePieceTokenizer):
        write_converted(tokenizers, folder)
    elif model_type in ("marian", "pegasus"):
        write_as_marian(tokenizers, folder)
    else:
        save_tokenizers(folder, tokenizers)
        try:
            write_tokenizer_json(tokenizers, folder, model_type=model_type)
        except UserError:
            warnings.warn(
                f"transformers has no tokenizer like this for '{model_type}', so the exported model takes ids; {JOINT} "
                "is a SentencePiece model that the sentencepiece package reads",
                stacklevel=3,
            )


def write_converted(tokenizers: Tokenizers, folder: Path) -> None:
    """Write tokenizers that came from a Hugging Face checkpoint."""
    tokenizer = tokenizers.source
    if isinstance(tokenizer, MarianTokenizer):
        write_marian(tokenizers, folder)
        return
    assert isinstance(tokenizer, HFTokenizer)
    write_hf_tokenizer(tokenizer, folder)
    split = {"split_special_tokens": True} if tokenizer.split_special_tokens else {}
    _write_settings(folder, tokenizer.roles, split)


def write_as_marian(tokenizers: Tokenizers, folder: Path) -> None:
    """Write heedful's own tokenizers as `MarianTokenizer` reads them."""
    for spm, vocabulary, tokenizer in (
        (SOURCE, VOCABULARY, tokenizers.source),
        (TARGET, TARGET_VOCABULARY, tokenizers.target),
    ):
        tokenizer.save(folder / spm)
        if vocabulary == VOCABULARY or not tokenizers.joint:
            write_json(folder / vocabulary, {piece: id for id, piece in enumerate(sentencepiece_pieces(tokenizer))})
    values = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not tokenizers.joint,
        "model_max_length": read_json(folder / CONFIG)["max_position_embeddings"],
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "bos_token": START,
        "eos_token": END,
    }
    write_json(folder / SETTINGS, values)


def write_tokenizer_json(tokenizers: Tokenizers, folder: Path, *, model_type: str) -> None:
    """Write a tokenizer of heedful's own as tokenizer.json, or raise a UserError if that cannot give the same ids.

    The ids are equal for every text without U+2581 and without special tokens written out: `transformers` takes U+2581
    for a space and finds special tokens in a text.
    """
    tokenizer = tokenizers.source
    assert isinstance(tokenizer, SentencePieceTokenizer)
    if not tokenizers.joint or not _is_expressible(tokenizer):
        raise UserError("transformers has no tokenizer like this one of heedful's")
    roles = _roles(tokenizer, model_type)
    content = _tokenizer_json(tokenizer, roles, *AROUND_TEXT.get(model_type, (None, "eos_token")))
    write_hf_tokenizer(HFTokenizer(content, roles), folder)
    _write_settings(folder, roles, {})


def _write_settings(folder: Path, roles: Mapping[str, str], switches: Mapping[str, bool]) -> None:
    # The general class: the class of a model type would build parts of the tokenizer anew, perhaps with other results.
    write_json(folder / SETTINGS, {"tokenizer_class": "PreTrainedTokenizerFast", **roles, **switches})


def _is_expressible(tokenizer: SentencePieceTokenizer) -> bool:
    """Return whether a tokenizer.json can give the ids of this tokenizer.

    Words, suffixes, lower case, collapsed spaces and a model with rules of its own have no equal there. For unigram,
    `tokenizers` breaks ties differently from SentencePiece.
    """
    config, info = tokenizer.config, tokenizer.info
    if info.kind not in ("bpe", "char") or info.suffix or not info.dummy_prefix or info.own_rules:
        return False
    return not (config.lowercase or config.collapse_spaces)


def _roles(tokenizer: SentencePieceTokenizer, model_type: str) -> dict[str, str]:
    roles = {"pad_token": PAD, "unk_token": UNKNOWN, "bos_token": START, "eos_token": END}
    if model_type == "bert":
        roles |= {"cls_token": START, "sep_token": END}
    if tokenizer.special_ids.mask_id is not None:
        roles["mask_token"] = MASK_PIECE
    return roles


def _tokenizer_json(
    tokenizer: SentencePieceTokenizer, roles: Mapping[str, str], before: str | None, after: str | None
) -> str:
    """Return the text of a tokenizer.json that gives the ids of one of heedful's own tokenizers."""
    config, info = tokenizer.config, tokenizer.info
    vocabulary = {piece: id for id, piece in enumerate(info.pieces)}
    special = [piece for piece, kind in zip(info.pieces, info.types, strict=True) if kind == CONTROL]
    unicode_form: list[dict[str, Any]] = (
        [] if config.unicode_form == "none" else [{"type": config.unicode_form.upper()}]
    )
    normalizers = [
        *unicode_form,
        {"type": "Prepend", "prepend": MARK},
        {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
    ]
    decoders = [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": _template(roles.get(before or ""), roles.get(after or ""), vocabulary),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": info.byte_fallback,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [] if info.kind == "char" else [list(merge) for merge in merges_of(vocabulary)],
        },
        "added_tokens": _added_tokens([*special, *roles.values()], vocabulary, strips_mask=info.kind != "char"),
    }
    return json.dumps(values, ensure_ascii=False)


def _added_tokens(pieces: Iterable[str], vocabulary: Mapping[str, int], *, strips_mask: bool) -> list[dict[str, Any]]:
    """Return the special tokens as entries of a tokenizer.json, in the order of their ids.

    `tokenizers` puts a space before the text that follows a special token. <mask> takes the space after it and, with
    `strips_mask`, the space before it: the space is part of the masked word.
    """
    return [
        {
            "id": vocabulary[piece],
            "content": piece,
            "single_word": False,
            "lstrip": piece == MASK_PIECE and strips_mask,
            "rstrip": piece == MASK_PIECE,
            "normalized": False,
            "special": True,
        }
        for piece in sorted(set(pieces), key=vocabulary.__getitem__)
    ]


def _template(before: str | None, after: str | None, vocabulary: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the post-processor that puts special tokens before and after a text, or between a pair of texts."""
    if before is None and after is None:
        return None

    def special(piece: str | None, segment: int) -> list[dict[str, Any]]:
        return [] if piece is None else [{"SpecialToken": {"id": piece, "type_id": segment}}]

    def text(name: str, segment: int) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": segment}}]

    first = [*special(before, 0), *text("A", 0), *special(after, 0)]
    between = [] if after else special(before, 0)
    pieces = [piece for piece in dict.fromkeys((before, after)) if piece is not None]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *between, *text("B", 1), *special(after, 1)],
        "special_tokens": {piece: {"id": piece, "ids": [vocabulary[piece]], "tokens": [piece]} for piece in pieces},
    }


def merges_of(vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the merges of a BPE vocabulary in order: pieces that join to an earlier piece come first.

    As in `transformers`, all ways to split a piece into two others count; among them, the lengths of the parts decide.
    """
    merges = []
    for piece, id in vocabulary.items():
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(left, right) for left, right in splits if left in vocabulary and right in vocabulary]
        known.sort(key=lambda split: (vocabulary[split[0]], vocabulary[split[1]]))
        merges += [(id, len(left), len(right), left, right) for left, right in known]
    merges.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in merges]
