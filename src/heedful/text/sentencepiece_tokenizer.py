"""SentencePiece behind heedful's Tokenizer protocol.

SentencePiece does the segmentation; what surrounds it is done here, so that nothing is lost (its own behaviour as of
0.2.2 in brackets): the space at the edge of a text is added and removed here [suffix mode decodes a trailing space],
U+2581 in a text goes to the model as bytes [it comes back as a space], words are looked up one by one [adjacent unknown
words merge], ids become text through a table, and sampling is `sampling.py` [its own differs in every process].
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

# Protobuf merges a message that occurs twice, the later value winning. Added to a model, the first takes all of its
# normalisation away (field 3: an empty table, no added space, no removed spaces), the second only the added space.
_NO_RULES = b"\x1a\x06\x12\x00\x18\x00\x20\x00"
_NO_ADDED_SPACE = b"\x1a\x02\x18\x00"

_STRETCH = 8192
_TEXTS_PER_THREAD = 32  # fewer are not worth starting a thread for

# For sampling, which takes memory for every place of a word: so a word of more than 255 characters is cut there.
_PREFIX_WORD = re.compile(f"{MARK}[^{MARK}]{{0,255}}|[^{MARK}]{{1,255}}")
_SUFFIX_WORD = re.compile(f"[^{MARK}]{{0,255}}{MARK}|[^{MARK}]{{1,255}}")


class SentencePieceTokenizer:
    """One SentencePiece model. Its bytes hold heedful's settings too; a foreign model has none, and so none apply."""

    def __init__(self, model: bytes, *, where: str = "tokenizer") -> None:
        facts = read_model(model, where=where)
        _check_special_ids(facts, where=where)
        config = _read_config(facts, where=where)
        if facts.kind == "word":
            facts = _with_words(facts, config, where=where)
        _check_agreement(facts, config, where=where)
        self.model = model
        self.config = config
        self.facts = facts
        self._normaliser = config.normalizer
        self._before, self._after = _edges(facts)
        self._texts = [_text_of(facts, number) for number in range(len(facts.pieces))]
        self._ids = {piece: number for number, piece in enumerate(facts.pieces)}
        self._byte_ids = [self._ids.get(f"<0x{byte:02X}>", SPECIAL_IDS.unk_id) for byte in range(256)]
        self.special_ids = replace(
            SPECIAL_IDS, mask_id=self._ids.get(MASK_PIECE) if MASK_PIECE in config.special_tokens else None
        )
        self._sampler = _sampler(facts, config, self._spell)
        self._processor = _processor(model + _NO_RULES, where=where)
        self._rules = _processor(model + _NO_ADDED_SPACE, where=where) if facts.own_rules else None

    def __reduce__(self) -> tuple[type["SentencePieceTokenizer"], tuple[bytes]]:
        return SentencePieceTokenizer, (self.model,)  # to another process; the rest is made from it again

    @property
    def kind(self) -> Kind:
        return self.facts.kind

    @property
    def vocab_size(self) -> int:
        return len(self.facts.pieces)

    @property
    def can_sample(self) -> bool:
        return self._sampler is not None

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def normalize(self, text: str) -> str:
        text = self._normaliser(text)
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
            raise UserError("this tokenizer was made without sampling: set tokenizer.sample_alpha (0.1 is usual)")
        sampler, random = self._sampler, Random(str(seed))  # a string, because Random takes -1 and 1 for the same
        words = (_SUFFIX_WORD if self.facts.suffix else _PREFIX_WORD).findall

        def sample(texts: list[str]) -> list[list[int]]:
            return [[n for word in words(text.replace(" ", MARK)) for n in sampler(word, random)] for text in texts]

        return self._encode(texts, sample)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        if not skip_special_tokens:
            return self._decode_with_specials(ids)
        try:
            # In stretches: one list of a million parts would take twice as long for each part as ten of a tenth.
            stretches = (ids[start : start + _STRETCH] for start in range(0, len(ids), _STRETCH))
            data = b"".join([b"".join([self._texts[number] for number in stretch]) for stretch in stretches])
        except IndexError:
            raise self._bad_id(ids) from None
        if min(ids, default=0) < 0:  # Python would count from the end
            raise self._bad_id(ids)
        text = data.decode("utf-8", "replace")  # a model may write half a character in bytes
        return text.removeprefix(self._before).removesuffix(self._after)

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        given = list(ids)
        if any(not 0 <= number < self.vocab_size for number in given):
            raise self._bad_id(given)
        return [self.facts.pieces[number] for number in given]

    def id_of(self, piece: str) -> int:
        if piece not in self._ids:
            raise UserError(f"the tokenizer has no piece {piece!r}{did_you_mean(piece, self.config.special_tokens)}")
        return self._ids[piece]

    def count_unknown(self, text: str) -> int:
        """Unknown words at word level, stretches of unknown characters elsewhere; 0 with byte fallback."""
        return self.encode(text).count(SPECIAL_IDS.unk_id)

    def save(self, path: str | Path) -> None:
        """One file, which `load_tokenizer` reads; to other programs it is a plain SentencePiece model."""
        Path(path).write_bytes(self.model)

    def with_config(self, config: TokenizerConfig) -> "SentencePieceTokenizer":
        """The same pieces with other settings, for instance another `sample_alpha`."""
        return SentencePieceTokenizer(configured(self.model, config))

    def describe(self) -> str:
        """One line for a person, with the size that was reached."""
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
        """Segment what stands between the U+2581 of the texts; in their own places these become bytes."""
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
        suffix = MARK if self.facts.suffix else ""
        prefix = "" if self.facts.suffix else MARK
        return [self._ids.get(prefix + word + suffix, SPECIAL_IDS.unk_id) for word in text.split(" ")] if text else []

    def _segment(self, texts: list[str]) -> list[list[int]]:
        n_threads = min(len(texts) // _TEXTS_PER_THREAD, n_cores())
        if n_threads < 2:
            return [self._processor.encode(text) for text in texts]
        ids: list[list[int]] = self._processor.encode(texts, num_threads=n_threads)
        return ids

    def _spell(self, character: str) -> list[int]:
        """A character that the vocabulary lacks, and U+2581, which SentencePiece would take for a space."""
        if not self.facts.byte_fallback:
            return [SPECIAL_IDS.unk_id]
        return [self._byte_ids[byte] for byte in character.encode()]

    def _decode_with_specials(self, ids: Sequence[int]) -> str:
        pieces = zip(ids, self.pieces(ids), strict=True)
        special_types = (CONTROL, UNKNOWN)
        parts = [piece.encode() if self.facts.types[id] in special_types else self._texts[id] for id, piece in pieces]
        text = b"".join(parts).decode("utf-8", "replace")
        return text.removeprefix(self._before).removesuffix(self._after)

    def _bad_id(self, ids: Sequence[int]) -> UserError:
        bad = next(number for number in ids if not 0 <= number < self.vocab_size)
        return UserError(
            f"id {int(bad)} is not in the vocabulary, which has 0 to {self.vocab_size - 1}: "
            "the ids were made with another tokenizer"
        )


def configured(model: bytes, config: TokenizerConfig) -> bytes:
    """The model with these settings inside."""
    return with_settings(model, json.dumps(config_to_dict(config), ensure_ascii=False, sort_keys=True).encode())


def _read_config(facts: SentencePieceInfo, *, where: str) -> TokenizerConfig:
    if facts.settings is not None:
        try:
            values = json.loads(facts.settings)
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
        kind=facts.kind,
        vocab_size=len(facts.pieces),
        whitespace="suffix" if facts.suffix else "prefix",
        byte_fallback=facts.byte_fallback or facts.kind == "word",
        unicode_form="none",  # whatever a foreign model does to text, it does by itself
    )


def _processor(model: bytes, *, where: str) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{where}: SentencePiece cannot load this model: {error}") from None
    return processor


def _check_special_ids(facts: SentencePieceInfo, *, where: str) -> None:
    found = facts.types[: SPECIAL_IDS.eos_id + 1]
    if found != [CONTROL, UNKNOWN, CONTROL, CONTROL]:
        raise UserError(
            f"{where}: the first four pieces are {', '.join(facts.pieces[:4])}; heedful needs the special tokens "
            "there: pad 0, unknown 1, start 2, end 3. A foreign model must be converted first"
        )


def _check_agreement(facts: SentencePieceInfo, config: TokenizerConfig, *, where: str) -> None:
    for name, model_has, config_has in (
        ("kind", facts.kind, config.kind),
        ("whitespace", "suffix" if facts.suffix else "prefix", config.whitespace),
        ("byte fallback", facts.byte_fallback, config.uses_bytes),
    ):
        if model_has != config_has:
            raise UserError(f"{where}: the model has {name} {model_has!r}, its settings say {config_has!r}")


def _with_words(facts: SentencePieceInfo, config: TokenizerConfig, *, where: str) -> SentencePieceInfo:
    """The facts with "word▁" in place of "▁word" where the settings say so.

    SentencePiece's word level knows no suffix: with it, the first word of a line loses its mark. So a word-level model
    is always learned with prefixes, and only shown and looked up with suffixes.
    """
    if facts.suffix or not facts.dummy_prefix:
        raise UserError(f"{where}: word level is supported only with a space before each word, SentencePiece's default")
    if config.whitespace == "prefix":
        return facts
    pieces = [piece[1:] + MARK if piece.startswith(MARK) else piece for piece in facts.pieces]
    return replace(facts, suffix=True, pieces=pieces)


def _edges(facts: SentencePieceInfo) -> tuple[str, str]:
    """The space that is put before or after a text, so that its words look the same everywhere."""
    if not facts.dummy_prefix:
        return "", ""
    return ("", " ") if facts.suffix else (" ", "")


def _text_of(facts: SentencePieceInfo, number: int) -> bytes:
    """What an id contributes to a text."""
    piece, kind = facts.pieces[number], facts.types[number]
    if kind == BYTE:
        return bytes([byte_of(piece)])
    if kind == CONTROL:
        return b""
    if kind == UNKNOWN:
        before, after = _edges(facts) if facts.kind == "word" else ("", "")
        return f"{before}{UNKNOWN_SIGN}{after}".encode()
    return piece.replace(MARK, " ").encode()


def _sampler(facts: SentencePieceInfo, config: TokenizerConfig, spell: Callable[[str], list[int]]) -> Sampler | None:
    if config.kind not in SAMPLING_KINDS or not config.sample_alpha:
        return None
    numbers = [number for number, kind in enumerate(facts.types) if kind in (NORMAL, USER_DEFINED)]
    vocabulary = Vocabulary(
        ids={facts.pieces[number]: number for number in numbers},
        scores={facts.pieces[number]: facts.scores[number] for number in numbers},
        spell=spell,
    )
    if config.kind == "bpe":
        return bpe_dropout(vocabulary, probability=config.sample_alpha)
    return unigram_sampling(vocabulary, alpha=config.sample_alpha)
