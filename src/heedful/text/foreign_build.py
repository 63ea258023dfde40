"""The older files of public tokenizers as one tokenizer.json: WordPiece, byte-level BPE, SentencePiece.

Each function builds what the tokenizer class of Hugging Face's Transformers 5 builds from the same file, so that the
ids are the same. Nothing here needs `tokenizers`.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.errors import UserError
from heedful.text.foreign_added import Given, Token, added_tokens, token_of
from heedful.text.sentencepiece_model import CONTROL, UNKNOWN, USER_DEFINED, SentencePieceInfo

MARK = "▁"
METASPACE = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
PEGASUS_OFFSET = 103  # the id of a Pegasus' piece is its place in the SentencePiece model, and so much


def word_piece(vocabulary: Mapping[str, int], given: Given) -> str:
    """BERT's: words at spaces and punctuation, then the longest pieces from the left, `##` inside a word."""
    accents = given.values.get("strip_accents")
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": given.flag("tokenize_chinese_chars", True),
        "strip_accents": accents if isinstance(accents, bool) else None,
        "lowercase": given.flag("do_lower_case", True),
    }
    model = {
        "type": "WordPiece",
        "unk_token": given.roles.get("unk_token", "[UNK]"),
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": dict(vocabulary),
    }
    added = added_tokens(vocabulary, given.whole(given.additional()))
    return content_of(
        model,
        added,
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=marks_template(added, given.roles, "cls_token", "sep_token"),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def byte_level(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], given: Given, *, marks: object = None
) -> str:
    """GPT-2's, RoBERTa's and BART's: any text is bytes, and neighbours are merged in the order of learning."""
    prefix = given.flag("add_prefix_space", False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    added = added_tokens(vocabulary, given.whole(given.additional()))
    return content_of(
        bpe_model(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""),
        added,
        pre_tokenizer=byte_level,
        post_processor=marks or marks_template(added, given.roles, "cls_token", "sep_token", twice=True),
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    )


def t5_pieces(
    pieces: Sequence[tuple[str, float]], charsmap: bytes, given: Given, *, additional: Sequence[Token]
) -> str:
    """T5's unigram model; its sentinels are found as a whole, whether or not the settings name them."""
    sentinels = [special_token(piece) for piece in reversed(given.sentinels())]
    if any("<extra_id_" in token["content"] for token in additional):
        sentinels = []
    return _unigram_words(
        pieces,
        given,
        [*additional, *sentinels],
        unknown=_T5_UNKNOWN,
        normalizer=_precompiled(charsmap),
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
    )


_T5_UNKNOWN = 2  # <pad>, </s>, <unk>: in the class, not in the file


def pegasus_pieces(facts: SentencePieceInfo, given: Given) -> str:
    """Pegasus' SentencePiece model behind the marks of its pre-training: two for what is hidden, 101 without a use."""
    offset = given.values.get("offset", PEGASUS_OFFSET)
    if type(offset) is not int or not 2 <= offset <= 10_000:
        raise UserError(f"{given.where}: 'offset' must be a number from 2 to 10,000, found {offset!r}")
    if UNKNOWN in facts.types[:2]:
        raise UserError(
            f"{given.where}: the SentencePiece model is not Pegasus': that has padding and an end as its first two"
        )
    marks = [given.roles["pad_token"], given.roles["eos_token"], "<mask_1>", "<mask_2>"]
    unused = [f"<unk_{number}>" for number in range(2, offset)]
    own = list(zip(facts.pieces, facts.scores, strict=True))[2:]  # without its own padding and end
    pieces = [*((piece, 0.0) for piece in marks), *((piece, -100.0) for piece in unused), *own]
    lines = {"type": "Replace", "pattern": {"Regex": "\\n"}, "content": " "}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    return _unigram_words(
        pieces,
        given,
        [*own_symbols(facts), *map(special_token, [*marks, *unused])],
        unknown=len(marks) + len(unused) + facts.types.index(UNKNOWN) - 2,
        normalizer={"type": "Sequence", "normalizers": [_precompiled(facts.charsmap) or lines, spaces]},
        pre_tokenizer=METASPACE,
    )


def _unigram_words(
    pieces: Sequence[tuple[str, float]],
    given: Given,
    additional: Sequence[Token],
    *,
    unknown: int,
    **parts: dict[str, Any] | None,
) -> str:
    """A unigram model of the words between spaces, and an end after each text; `parts`: what comes before the model."""
    model = {"type": "Unigram", "unk_id": unknown, "vocab": list(pieces), "byte_fallback": False}
    added = added_tokens({piece: number for number, (piece, _) in enumerate(pieces)}, given.whole(additional))
    ends = marks_template(added, given.roles, "", "eos_token")
    return content_of(model, added, post_processor=ends, decoder=METASPACE, **parts)


def llama_pieces(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    given: Given,
    *,
    additional: Sequence[Token],
    marks: object = None,
) -> str:
    """Llama's: BPE on whole texts, spaces as ▁, what is unknown in bytes."""
    prefix = given.flag("add_prefix_space", True)
    scheme = ("always" if given.flag("legacy", False) else "first") if prefix else "never"
    decoders: list[dict[str, Any]] = [*SPACES_AND_BYTES]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    added = added_tokens(vocabulary, given.whole(additional))
    return content_of(
        bpe_model(vocabulary, merges, fuse_unk=True, byte_fallback=True),
        added,
        post_processor=marks or bounds_template(added, given),
        pre_tokenizer={"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": False},
        decoder={"type": "Sequence", "decoders": decoders},
    )


def any_pieces(facts: SentencePieceInfo, given: Given) -> str:
    """Any other model of SentencePiece, with byte fallback where it has it."""
    vocabulary = {piece: number for number, piece in enumerate(facts.pieces)}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    normalizers = [part for part in (_precompiled(facts.charsmap), spaces) if part is not None]
    decoders = SPACES_AND_BYTES if facts.byte_fallback else SPACES_AND_BYTES[:1]
    unknown = facts.types.index(UNKNOWN)
    model: dict[str, Any] = {
        "type": "Unigram",
        "unk_id": unknown,
        "vocab": list(zip(facts.pieces, facts.scores, strict=True)),
        "byte_fallback": facts.byte_fallback,
    }
    if facts.kind == "bpe":
        settings = {"unk_token": facts.pieces[unknown], "fuse_unk": True, "byte_fallback": facts.byte_fallback}
        model = bpe_model(vocabulary, merges_of(vocabulary), **settings)
    added = added_tokens(vocabulary, given.whole(own_symbols(facts)))
    return content_of(
        model,
        added,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        post_processor=bounds_template(added, given),
        decoder={"type": "Sequence", "decoders": decoders},
    )


def merges_of(vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges of a BPE whose file has only its pieces: each piece is made of two others, the earlier piece first.

    As Hugging Face counts them: by the piece that is made; of its ways, by the lengths of the parts.
    """
    merges = []
    for piece, number in vocabulary.items():
        ways = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(left, right) for left, right in ways if left in vocabulary and right in vocabulary]
        known.sort(key=lambda way: (vocabulary[way[0]], vocabulary[way[1]]))
        merges += [(number, len(left), len(right), left, right) for left, right in known]
    merges.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in merges]


SPACES_AND_BYTES: tuple[dict[str, Any], ...] = (
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)


def bpe_model(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], **settings: object) -> dict[str, Any]:
    defaults = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return {**defaults, **settings, "vocab": dict(vocabulary), "merges": [list(merge) for merge in merges]}


def _precompiled(charsmap: bytes) -> dict[str, Any] | None:
    if not charsmap:
        return None
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}


def own_symbols(facts: SentencePieceInfo) -> list[Token]:
    """The pieces that SentencePiece finds before anything else, or never; those are special."""
    kinds = zip(facts.pieces, facts.types, strict=True)
    symbols = [(piece, kind == CONTROL) for piece, kind in kinds if kind in (CONTROL, USER_DEFINED)]
    return [{**special_token(piece), "special": special} for piece, special in symbols]


def special_token(piece: str) -> Token:
    return token_of(piece, special=True, where=piece)


def bounds_template(added: Sequence[Mapping[str, Any]], given: Given) -> dict[str, Any] | None:
    """The marks that the settings ask for at the beginning and the end."""
    before = "bos_token" if given.flag("add_bos_token", False) else ""
    after = "eos_token" if given.flag("add_eos_token", False) else ""
    return marks_template(added, given.roles, before, after)


def marks_template(
    added: Sequence[Mapping[str, Any]], roles: Mapping[str, str], before: str, after: str, *, twice: bool = False
) -> dict[str, Any] | None:
    """The marks that other programs put around a text; of a pair `twice` between the two, as RoBERTa has it."""
    ids = {token["content"]: token["id"] for token in added}
    first, last = roles.get(before), roles.get(after)
    if first is None and last is None:
        return None

    def mark(piece: str | None, segment: int) -> list[dict[str, Any]]:
        return [] if piece is None else [{"SpecialToken": {"id": piece, "type_id": segment}}]

    def text(name: str, segment: int) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": segment}}]

    second = 0 if twice else 1
    between = mark(last, 0) * 2 if twice else [*mark(last, 0), *([] if last else mark(first, 0))]
    pieces = [piece for piece in dict.fromkeys((first, last)) if piece is not None]
    return {
        "type": "TemplateProcessing",
        "single": [*mark(first, 0), *text("A", 0), *mark(last, 0)],
        "pair": [*mark(first, 0), *text("A", 0), *between, *text("B", second), *mark(last, second)],
        "special_tokens": {piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]} for piece in pieces},
    }


def content_of(
    model: dict[str, Any],
    added: list[dict[str, Any]],
    *,
    normalizer: object = None,
    pre_tokenizer: object = None,
    post_processor: object = None,
    decoder: object = None,
) -> str:
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }
    return content_with(values, added)


def content_with(values: Mapping[str, Any], added: list[Token]) -> str:
    return json.dumps({**values, "added_tokens": added}, ensure_ascii=False)
