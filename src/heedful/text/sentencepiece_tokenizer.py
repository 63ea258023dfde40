"""heedful's own tokenizer: SentencePiece behind the `Tokenizer` protocol, without loss.

SentencePiece only splits text into pieces. The rest is done here, because SentencePiece 0.2.2 would lose something:

- The space at the edge of a text is added and removed here. SentencePiece's suffix mode decodes a trailing space.
- U+2581 in a text becomes bytes. SentencePiece decodes it as a space.
- At word level, each word is looked up. SentencePiece merges adjacent unknown words.
- Sampling is in `subword_regularization`. SentencePiece's differs from process to process.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import sentencepiece

from heedful.config import config_from_dict, config_to_dict
from heedful.devices import n_cores
from heedful.errors import UserError, did_you_mean
from heedful.text.sentencepiece_model import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    SentencePieceInfo,
    byte_of,
    read_model,
    with_settings,
)
from heedful.text.special_ids import SPECIAL_IDS
from heedful.text.subword_regularization import Sampler, Vocabulary, bpe_dropout, unigram_sampling
from heedful.text.tokenizer import MASK_PIECE, UNKNOWN_SIGN
from heedful.text.tokenizer_config import SAMPLING_KINDS, Kind, TokenizerConfig, cannot_sample

MARK = "▁"  # U+2581, SentencePiece's sign for a space

# Protobuf merges a message that occurs twice; the later value counts. Appended to a model, the first of these removes
# all of its normalisation (field 3: an empty table, no added space, no removed spaces), the second only that space.
_NO_RULES = b"\x1a\x06\x12\x00\x18\x00\x20\x00"
_NO_ADDED_SPACE = b"\x1a\x02\x18\x00"

_CHUNK = 8192
_TEXTS_PER_THREAD = 32  # for fewer texts, starting a thread takes longer than it saves

# Sampling takes memory for each position in a word, so longer words are split after 255 characters.
_PREFIX_WORD = re.compile(f"{MARK}[^{MARK}]{{0,255}}|[^{MARK}]{{1,255}}")
_SUFFIX_WORD = re.compile(f"[^{MARK}]{{0,255}}{MARK}|[^{MARK}]{{1,255}}")


class SentencePieceTokenizer:
    """A tokenizer from one SentencePiece model, whose file also has heedful's settings.

    The file of another program lacks these settings; then the model alone decides how text is normalised.
    """

    def __init__(self, model: bytes, *, where: str = "tokenizer") -> None:
        info = read_model(model, where=where)
        _check_special_ids(info, where=where)
        config = _read_config(info, where=where)
        if info.kind == "word":
            info = _with_words(info, config, where=where)
        _check_agreement(info, config, where=where)
        self.model = model
        self.config = config
        self.info = info
        self._normalizer = config.normalizer
        self._before, self._after = _edges(info)
        self._texts = [_text_of(info, id) for id in range(len(info.pieces))]
        self._ids = {piece: id for id, piece in enumerate(info.pieces)}
        self._byte_ids = [self._ids.get(f"<0x{byte:02X}>", SPECIAL_IDS.unk_id) for byte in range(256)]
        self.special_ids = replace(
            SPECIAL_IDS, mask_id=self._ids.get(MASK_PIECE) if MASK_PIECE in config.special_tokens else None
        )
        self._sampler = _sampler(info, config, self._spell)
        self._processor = _processor(model + _NO_RULES, where=where)
        self._rules = _processor(model + _NO_ADDED_SPACE, where=where) if info.own_rules else None

    def __reduce__(self) -> tuple[type["SentencePieceTokenizer"], tuple[bytes]]:
        return SentencePieceTokenizer, (self.model,)  # another process builds the rest again

    @property
    def kind(self) -> Kind:
        return self.info.kind

    @property
    def vocab_size(self) -> int:
        return len(self.info.pieces)

    @property
    def can_sample(self) -> bool:
        return self._sampler is not None

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def normalize(self, text: str) -> str:
        text = self._normalizer(text)
        if self._rules is None:
            return text
        return str(self._rules.normalize(text)).replace(MARK, " ")

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode(texts, self._segment)

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        if self.kind not in SAMPLING_KINDS:
            raise cannot_sample(self.kind)
        if self._sampler is None:
            raise UserError("this tokenizer has sampling switched off: set tokenizer.sample_alpha (0.1 is usual)")
        sampler, random = self._sampler, Random(str(seed))  # a string, because Random seeds -1 and 1 alike
        words = (_SUFFIX_WORD if self.info.suffix else _PREFIX_WORD).findall

        def sample(texts: list[str]) -> list[list[int]]:
            return [[n for word in words(text.replace(" ", MARK)) for n in sampler(word, random)] for text in texts]

        return self._encode(texts, sample)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        if not skip_special_tokens:
            return self._decode_with_specials(ids)
        try:
            # In chunks: for one list of a million parts, each part takes twice as long as for ten lists.
            chunks = (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))
            data = b"".join([b"".join([self._texts[id] for id in chunk]) for chunk in chunks])
        except IndexError:
            raise self._bad_id(ids) from None
        if min(ids, default=0) < 0:  # Python would count from the end
            raise self._bad_id(ids)
        text = data.decode("utf-8", "replace")  # a model may write half a character in bytes
        return text.removeprefix(self._before).removesuffix(self._after)

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        ids = list(ids)
        if any(not 0 <= id < self.vocab_size for id in ids):
            raise self._bad_id(ids)
        return [self.info.pieces[id] for id in ids]

    def id_of(self, piece: str) -> int:
        if piece not in self._ids:
            raise UserError(f"the tokenizer has no piece {piece!r}{did_you_mean(piece, self.config.special_tokens)}")
        return self._ids[piece]

    def count_unknown(self, text: str) -> int:
        """Count unknown words at word level, otherwise runs of unknown characters; 0 with byte fallback."""
        return self.encode(text).count(SPECIAL_IDS.unk_id)

    def save(self, path: str | Path) -> None:
        """Write one file that `load_tokenizer` reads; other programs read it as a SentencePiece model."""
        Path(path).write_bytes(self.model)

    def with_config(self, config: TokenizerConfig) -> "SentencePieceTokenizer":
        """Return a tokenizer with these pieces and other settings, for instance another `sample_alpha`."""
        return SentencePieceTokenizer(configured(self.model, config))

    def describe(self) -> str:
        """Return one line for people: the kind and the number of pieces."""
        asked = f" of {self.config.vocab_size:,} allowed" if self.config.vocab_size != self.vocab_size else ""
        return f"{self.kind}, {self.vocab_size:,} pieces{asked}"

    def _encode(self, texts: Sequence[str], segment: Callable[[list[str]], list[list[int]]]) -> list[list[int]]:
        normal = [self.normalize(text) for text in texts]
        if self.kind == "word":
            return [self._look_up(text) for text in normal]
        marked = [self._before + text + self._after if text else "" for text in normal]
        if not any(MARK in text for text in marked):
            return segment(marked)
        return self._around_marks(marked, segment)

    def _around_marks(self, texts: list[str], segment: Callable[[list[str]], list[list[int]]]) -> list[list[int]]:
        """Segment the text between the U+2581 characters of each text; these characters themselves become bytes."""
        mark_ids = self._spell(MARK)
        parts = [text.split(MARK) for text in texts]
        segmented = iter(segment([part for text in parts for part in text if part]))
        result = []
        for text in parts:
            ids: list[int] = []
            for number, part in enumerate(text):
                if number:
                    ids += mark_ids
                if part:
                    ids += next(segmented)
            result.append(ids)
        return result

    def _look_up(self, text: str) -> list[int]:
        suffix = MARK if self.info.suffix else ""
        prefix = "" if self.info.suffix else MARK
        return [self._ids.get(prefix + word + suffix, SPECIAL_IDS.unk_id) for word in text.split(" ")] if text else []

    def _segment(self, texts: list[str]) -> list[list[int]]:
        n_threads = min(len(texts) // _TEXTS_PER_THREAD, n_cores())
        if n_threads < 2:
            return [self._processor.encode(text) for text in texts]
        ids: list[list[int]] = self._processor.encode(texts, num_threads=n_threads)
        return ids

    def _spell(self, character: str) -> list[int]:
        """Return the ids of a character without a piece, or of U+2581, which SentencePiece takes for a space."""
        if not self.info.byte_fallback:
            return [SPECIAL_IDS.unk_id]
        return [self._byte_ids[byte] for byte in character.encode()]

    def _decode_with_specials(self, ids: Sequence[int]) -> str:
        pieces = zip(ids, self.pieces(ids), strict=True)
        special_types = (CONTROL, UNKNOWN)
        parts = [piece.encode() if self.info.types[id] in special_types else self._texts[id] for id, piece in pieces]
        text = b"".join(parts).decode("utf-8", "replace")
        return text.removeprefix(self._before).removesuffix(self._after)

    def _bad_id(self, ids: Sequence[int]) -> UserError:
        bad = next(id for id in ids if not 0 <= id < self.vocab_size)
        return UserError(
            f"id {int(bad)} is not in the vocabulary, which has 0 to {self.vocab_size - 1}: "
            "the ids were made with another tokenizer"
        )


def configured(model: bytes, config: TokenizerConfig) -> bytes:
    """Return the model with these settings in its file."""
    return with_settings(model, json.dumps(config_to_dict(config), ensure_ascii=False, sort_keys=True).encode())


def _read_config(info: SentencePieceInfo, *, where: str) -> TokenizerConfig:
    if info.settings is not None:
        try:
            values = json.loads(info.settings)
        except (ValueError, RecursionError):
            raise UserError(f"{where}: the settings inside the model are damaged") from None
        values = values if isinstance(values, dict) else {}
        if "normal_form" in values:
            raise UserError(
                f"{where}: an older version of heedful wrote this tokenizer, and its settings have other names now; "
                "train the model again"
            )
        return config_from_dict(TokenizerConfig, values, where=f"{where}, settings")
    return TokenizerConfig(
        kind=info.kind,
        vocab_size=len(info.pieces),
        whitespace="suffix" if info.suffix else "prefix",
        byte_fallback=info.byte_fallback or info.kind == "word",
        unicode_form="none",  # the model itself normalises text
    )


def _processor(model: bytes, *, where: str) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{where}: SentencePiece cannot load this model: {error}") from None
    return processor


def _check_special_ids(info: SentencePieceInfo, *, where: str) -> None:
    types = info.types[: SPECIAL_IDS.eos_id + 1]
    if types != [CONTROL, UNKNOWN, CONTROL, CONTROL]:
        raise UserError(
            f"{where}: the first four pieces are {', '.join(info.pieces[:4])}; heedful needs the special tokens "
            "there: pad 0, unknown 1, start 2, end 3. Convert a model of another program with heedful convert"
        )


def _check_agreement(info: SentencePieceInfo, config: TokenizerConfig, *, where: str) -> None:
    for name, model_has, config_has in (
        ("kind", info.kind, config.kind),
        ("whitespace", "suffix" if info.suffix else "prefix", config.whitespace),
        ("byte fallback", info.byte_fallback, config.uses_bytes),
    ):
        if model_has != config_has:
            raise UserError(f"{where}: the model has {name} {model_has!r}, but its settings have {config_has!r}")


def _with_words(info: SentencePieceInfo, config: TokenizerConfig, *, where: str) -> SentencePieceInfo:
    """Return the info with pieces like "word▁" instead of "▁word" if the settings have the whitespace as suffix.

    SentencePiece's word level has no suffix: the first word of a line loses its ▁. So a word-level model is always
    learned with prefixes, and only shown and looked up with suffixes.
    """
    if info.suffix or not info.dummy_prefix:
        raise UserError(f"{where}: word level is supported only with a space before each word, SentencePiece's default")
    if config.whitespace == "prefix":
        return info
    pieces = [piece[1:] + MARK if piece.startswith(MARK) else piece for piece in info.pieces]
    return replace(info, suffix=True, pieces=pieces)


def _edges(info: SentencePieceInfo) -> tuple[str, str]:
    """Return what is added before and after a text, so that a word has the same piece at the edge as inside."""
    if not info.dummy_prefix:
        return "", ""
    return ("", " ") if info.suffix else (" ", "")


def _text_of(info: SentencePieceInfo, id: int) -> bytes:
    """Return the bytes that an id contributes to a text."""
    piece, kind = info.pieces[id], info.types[id]
    if kind == BYTE:
        return bytes([byte_of(piece)])
    if kind == CONTROL:
        return b""
    if kind == UNKNOWN:
        before, after = _edges(info) if info.kind == "word" else ("", "")
        return f"{before}{UNKNOWN_SIGN}{after}".encode()
    return piece.replace(MARK, " ").encode()


def _sampler(info: SentencePieceInfo, config: TokenizerConfig, spell: Callable[[str], list[int]]) -> Sampler | None:
    if config.kind not in SAMPLING_KINDS or not config.sample_alpha:
        return None
    ids = [id for id, kind in enumerate(info.types) if kind in (NORMAL, USER_DEFINED)]
    vocabulary = Vocabulary(
        ids={info.pieces[id]: id for id in ids},
        scores={info.pieces[id]: info.scores[id] for id in ids},
        spell=spell,
    )
    if config.kind == "bpe":
        return bpe_dropout(vocabulary, probability=config.sample_alpha)
    return unigram_sampling(vocabulary, alpha=config.sample_alpha)
