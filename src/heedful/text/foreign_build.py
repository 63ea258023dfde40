"""The older files of public tokenizers as one tokenizer.json: WordPiece, byte-level BPE, SentencePiece.

Each function builds what the tokenizer class of Hugging Face's Transformers 5 builds from the same file, so that the
ids are the same. Nothing here needs `tokenizers`.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.errors import UserError
from heedful.text.safe import CONTROL, UNKNOWN, USER_DEFINED, ModelFacts

MARK = "▁"
METASPACE = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
PEGASUS_OFFSET = 103  # the id of a Pegasus' piece is its place in the SentencePiece model, and so much
N_SENTINELS = 100  # T5's <extra_id_0> … <extra_id_99>


def word_piece(
    vocabulary: Mapping[str, int], roles: Mapping[str, str], settings: Mapping[str, Any], *, where: str
) -> str:
    """BERT's: words at spaces and punctuation, then the longest pieces from the left, `##` inside a word."""
    lowercase = _flag(settings, "do_lower_case", True, where)
    accents = settings.get("strip_accents")
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": _flag(settings, "tokenize_chinese_chars", True, where),
        "strip_accents": accents if isinstance(accents, bool) else None,
        "lowercase": lowercase,
    }
    model = {
        "type": "WordPiece",
        "unk_token": roles.get("unk_token", "[UNK]"),
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": dict(vocabulary),
    }
    added = added_tokens(vocabulary, roles.values())
    return content_of(
        model,
        added,
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=marks_template(added, roles, "cls_token", "sep_token"),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def byte_level(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    roles: Mapping[str, str],
    settings: Mapping[str, Any],
    *,
    where: str,
) -> str:
    """GPT-2's, RoBERTa's and BART's: any text is bytes, and neighbours are merged in the order of learning."""
    prefix = _flag(settings, "add_prefix_space", False, where)
    byte_level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    added = added_tokens(vocabulary, roles.values())
    return content_of(
        bpe_model(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""),
        added,
        pre_tokenizer=byte_level,
        post_processor=marks_template(added, roles, "cls_token", "sep_token", twice=True),
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    )


def t5_pieces(facts: ModelFacts, roles: Mapping[str, str], settings: Mapping[str, Any], *, where: str) -> str:
    """T5's SentencePiece model, with its sentinels after the pieces, the last first."""
    n_sentinels = settings.get("extra_ids", N_SENTINELS)
    if type(n_sentinels) is not int or not 0 <= n_sentinels <= 10_000:
        raise UserError(f"{where}: 'extra_ids' must be a number from 0 to 10,000, found {n_sentinels!r}")
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(n_sentinels))]
    pieces = [*zip(facts.pieces, facts.scores, strict=True), *((piece, 0.0) for piece in sentinels)]
    return _unigram_words(
        pieces,
        facts,
        [*roles.values(), *sentinels],
        roles,
        normalizer=_charsmap(facts),
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
    )


def pegasus_pieces(facts: ModelFacts, roles: Mapping[str, str], settings: Mapping[str, Any], *, where: str) -> str:
    """Pegasus' SentencePiece model behind the marks of its pre-training: two for what is hidden, 101 without a use."""
    offset = settings.get("offset", PEGASUS_OFFSET)
    if type(offset) is not int or not 2 <= offset <= 10_000:
        raise UserError(f"{where}: 'offset' must be a number from 2 to 10,000, found {offset!r}")
    if UNKNOWN in facts.types[:2]:
        raise UserError(
            f"{where}: the SentencePiece model is not Pegasus': that has padding and an end as its first two"
        )
    marks = [roles["pad_token"], roles["eos_token"], "<mask_1>", "<mask_2>"]
    unused = [f"<unk_{number}>" for number in range(2, offset)]
    own = list(zip(facts.pieces, facts.scores, strict=True))[2:]  # without its own padding and end
    pieces = [*((piece, 0.0) for piece in marks), *((piece, -100.0) for piece in unused), *own]
    lines = {"type": "Replace", "pattern": {"Regex": "\\n"}, "content": " "}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    return _unigram_words(
        pieces,
        facts,
        [*roles.values(), *marks, *unused],
        roles,
        normalizer={"type": "Sequence", "normalizers": [_charsmap(facts) or lines, spaces]},
        pre_tokenizer=METASPACE,
    )


def _unigram_words(
    pieces: Sequence[tuple[str, float]],
    facts: ModelFacts,
    special: Iterable[str],
    roles: Mapping[str, str],
    **parts: dict[str, Any] | None,
) -> str:
    """A unigram model of the words between spaces, and an end after each text; `parts`: what comes before the model."""
    vocabulary = {piece: number for number, (piece, _) in enumerate(pieces)}
    unknown = vocabulary[facts.pieces[facts.types.index(UNKNOWN)]]
    model = {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": False}
    added = added_tokens(vocabulary, special, _own_symbols(facts))
    ends = marks_template(added, roles, "", "eos_token")
    return content_of(model, added, post_processor=ends, decoder=METASPACE, **parts)


def llama_pieces(facts: ModelFacts, roles: Mapping[str, str], settings: Mapping[str, Any], *, where: str) -> str:
    """Llama's SentencePiece model: BPE on whole texts, spaces as ▁, what is unknown in bytes."""
    if facts.kind == "unigram":
        return unigram_pieces(facts, roles)
    prefix = _flag(settings, "add_prefix_space", True, where)
    legacy = _flag(settings, "legacy", False, where)
    scheme = ("always" if legacy else "first") if prefix else "never"
    vocabulary = {piece: number for number, piece in enumerate(facts.pieces)}
    decoders: list[dict[str, Any]] = [*SPACES_AND_BYTES]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    before = "bos_token" if _flag(settings, "add_bos_token", False, where) else ""
    after = "eos_token" if _flag(settings, "add_eos_token", False, where) else ""
    added = added_tokens(vocabulary, roles.values(), _own_symbols(facts))
    return content_of(
        bpe_model(vocabulary, merges_of(vocabulary), fuse_unk=True, byte_fallback=True),
        added,
        post_processor=marks_template(added, roles, before, after),
        pre_tokenizer={"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": False},
        decoder={"type": "Sequence", "decoders": decoders},
    )


def unigram_pieces(facts: ModelFacts, roles: Mapping[str, str]) -> str:
    """Any other unigram model of SentencePiece, with byte fallback where it has it."""
    vocabulary = {piece: number for number, piece in enumerate(facts.pieces)}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    normalizers = [part for part in (_charsmap(facts), spaces) if part is not None]
    decoders = SPACES_AND_BYTES if facts.byte_fallback else SPACES_AND_BYTES[:1]
    model = {
        "type": "Unigram",
        "unk_id": facts.types.index(UNKNOWN),
        "vocab": list(zip(facts.pieces, facts.scores, strict=True)),
        "byte_fallback": facts.byte_fallback,
    }
    return content_of(
        model,
        added_tokens(vocabulary, roles.values(), _own_symbols(facts)),
        normalizer={"type": "Sequence", "normalizers": normalizers},
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


def _charsmap(facts: ModelFacts) -> dict[str, Any] | None:
    if not facts.charsmap:
        return None
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(facts.charsmap).decode()}


def _own_symbols(facts: ModelFacts) -> dict[str, bool]:
    """The pieces that SentencePiece finds before anything else, or never; True = special."""
    kinds = zip(facts.pieces, facts.types, strict=True)
    return {piece: kind == CONTROL for piece, kind in kinds if kind in (CONTROL, USER_DEFINED)}


def added_tokens(
    vocabulary: Mapping[str, int], special: Iterable[str], symbols: Mapping[str, bool] | None = None
) -> list[dict[str, Any]]:
    """Pieces that are found as a whole, by their ids; one that the vocabulary lacks comes after its last."""
    flags = {**(symbols or {}), **dict.fromkeys(special, True)}
    ids = {piece: vocabulary[piece] for piece in flags if piece in vocabulary}
    following = max(vocabulary.values(), default=-1) + 1
    for piece in flags:
        if piece not in ids:
            ids[piece] = following
            following += 1
    return [
        {
            "id": number,
            "content": piece,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": flags[piece],
        }
        for piece, number in sorted(ids.items(), key=lambda item: item[1])
    ]


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
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }
    return json.dumps(values, ensure_ascii=False)


def _flag(settings: Mapping[str, Any], name: str, default: bool, where: str) -> bool:
    value = settings.get(name)
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{where}: '{name}' must be true or false, found {value!r}")
    return default if value is None else value
