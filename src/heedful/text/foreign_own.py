"""heedful's own tokenizers as a tokenizer.json, for models that are taken elsewhere.

The same ids for every text without U+2581 and without special pieces written out: theirs takes the one for a space and
finds the others. What would not be the same there gives None: words, suffixes, lower case, collapsed spaces; and
unigram, where `tokenizers` decides ties otherwise than SentencePiece.
"""

from typing import Any

from heedful.text.foreign_added import added_tokens
from heedful.text.foreign_build import (
    SPACES_AND_BYTES,
    bpe_model,
    content_of,
    marks_template,
    merges_of,
    special_token,
)
from heedful.text.sentencepiece_model import CONTROL
from heedful.text.sentencepiece_tokenizer import MARK, SentencePieceTokenizer
from heedful.text.tokenizer import MASK_PIECE, SPECIAL_PIECES

PAD, UNK, START, END = SPECIAL_PIECES
# model_type -> the parts of the marks that stand before and after a text
AROUND = {"bert": ("bos_token", "eos_token"), "gpt2": ("bos_token", ""), "llama": ("bos_token", "")}


def own_content(tokenizer: SentencePieceTokenizer, *, model_type: str) -> tuple[str, dict[str, str]] | None:
    """A tokenizer.json and the parts of its special pieces, or None where theirs could not do the same."""
    config, facts = tokenizer.config, tokenizer.facts
    if facts.kind not in ("bpe", "char") or facts.suffix or not facts.dummy_prefix or facts.own_rules:
        return None
    if config.lowercase or config.collapse_spaces:
        return None
    roles = {"pad_token": PAD, "unk_token": UNK, "bos_token": START, "eos_token": END}
    if model_type == "bert":
        roles |= {"cls_token": START, "sep_token": END}
    if tokenizer.special_ids.mask_id is not None:
        roles["mask_token"] = MASK_PIECE
    vocabulary = {piece: number for number, piece in enumerate(facts.pieces)}
    controls = [piece for piece, kind in zip(facts.pieces, facts.types, strict=True) if kind == CONTROL]
    added = added_tokens(vocabulary, map(special_token, [*controls, *roles.values()]))
    for token in added:  # theirs puts a space before what follows; and of a hidden word, that before it is a part
        token["rstrip"] = token["content"] == MASK_PIECE
        token["lstrip"] = token["rstrip"] and facts.kind != "char"
    normalizers: list[dict[str, Any]] = [] if config.unicode_form == "none" else [{"type": config.unicode_form.upper()}]
    normalizers += [
        {"type": "Prepend", "prepend": MARK},
        {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
    ]
    before, after = AROUND.get(model_type, ("", "eos_token"))
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    content = content_of(
        _model(tokenizer, vocabulary),
        added,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        post_processor=marks_template(added, roles, before, after),
        decoder={"type": "Sequence", "decoders": [*SPACES_AND_BYTES, strip]},
    )
    return content, roles


def _model(tokenizer: SentencePieceTokenizer, vocabulary: dict[str, int]) -> dict[str, Any]:
    facts = tokenizer.facts
    merges = [] if facts.kind == "char" else merges_of(vocabulary)
    return bpe_model(vocabulary, merges, unk_token=UNK, fuse_unk=True, byte_fallback=facts.byte_fallback)
