"""The settings of a tokenizer: the table [tokenizer] of a recipe."""

import math
from dataclasses import dataclass
from typing import Literal

from heedful.errors import UserError, invalid_choice
from heedful.text.normalize import Form, Normalizer
from heedful.text.tokenizer import SPECIAL_PIECES

Kind = Literal["word", "char", "bpe", "unigram"]
Whitespace = Literal["prefix", "suffix"]

KINDS: tuple[Kind, ...] = ("word", "char", "bpe", "unigram")
SAMPLING_KINDS: tuple[Kind, ...] = ("bpe", "unigram")
N_BYTES = 256


@dataclass(frozen=True)
class TokenizerConfig:
    """What kind of vocabulary to learn, and how to normalize text.

    >>> TokenizerConfig(kind="unigram", vocab_size=4000).smallest_vocab_size
    261
    """

    kind: Kind = "bpe"  # the unit of the vocabulary
    vocab_size: int = 8000  # an upper limit: a small text gives fewer pieces
    joint: bool = True  # one vocabulary for source and target
    whitespace: Whitespace = "prefix"  # the side of a piece with the space: "▁word", or "word▁" (</w> in the BPE paper)
    byte_fallback: bool = True  # characters without a piece become bytes; not at word level
    character_coverage: float = 0.9995  # bpe and unigram: the rest of the characters, the rarest, get no piece
    sample_alpha: float = 0.0  # bpe: the probability to drop a merge; unigram: the smoothing; 0: no sampling
    unicode_form: Form = "nfc"  # the Unicode normalization of text
    lowercase: bool = False  # convert text to lower case
    collapse_spaces: bool = False  # runs of whitespace become one space; always at word level
    special_tokens: tuple[str, ...] = ()  # more special tokens, from id 4 on; no text is encoded as one
    max_texts: int = 500_000  # learn from at most this many texts, chosen with a fixed seed

    def __post_init__(self) -> None:
        _check_names(self)
        _check_numbers(self)
        _check_special_tokens(self.special_tokens)

    @property
    def uses_bytes(self) -> bool:
        return self.byte_fallback and self.kind != "word"

    @property
    def normalizer(self) -> Normalizer:
        collapse = self.collapse_spaces or self.kind == "word"
        return Normalizer(form=self.unicode_form, lowercase=self.lowercase, collapse_spaces=collapse)

    @property
    def smallest_vocab_size(self) -> int:
        """The size of a vocabulary with special tokens, bytes and one piece."""
        return len(SPECIAL_PIECES) + len(self.special_tokens) + (N_BYTES if self.uses_bytes else 0) + 1


def _check_names(config: TokenizerConfig) -> None:
    for name, value, allowed in (
        ("kind", config.kind, KINDS),
        ("whitespace", config.whitespace, ("prefix", "suffix")),
        ("unicode_form", config.unicode_form, ("none", "nfc", "nfkc")),
    ):
        if value not in allowed:
            raise invalid_choice(f"tokenizer.{name}", value, allowed)


def _check_numbers(config: TokenizerConfig) -> None:
    if config.vocab_size < config.smallest_vocab_size:
        raise UserError(
            f"tokenizer.vocab_size is {config.vocab_size}, but the special tokens"
            f"{' and the 256 bytes' if config.uses_bytes else ''} alone need {config.smallest_vocab_size}: "
            "set a larger one (8000 is usual)"
        )
    if not 0.98 <= config.character_coverage <= 1.0:
        raise UserError(f"tokenizer.character_coverage is {config.character_coverage}; it must be from 0.98 to 1")
    if not (config.sample_alpha >= 0 and math.isfinite(config.sample_alpha)):
        raise UserError(f"tokenizer.sample_alpha is {config.sample_alpha}; it must be 0 (no sampling) or more")
    if config.sample_alpha and config.kind not in SAMPLING_KINDS:
        raise cannot_sample(config.kind)
    if config.kind == "bpe" and config.sample_alpha >= 1:
        raise UserError(f"tokenizer.sample_alpha is {config.sample_alpha}: bpe would drop every merge; 0.1 is usual")
    if config.max_texts < 1:
        raise UserError(f"tokenizer.max_texts is {config.max_texts}; it must be 1 or more")


def cannot_sample(kind: str) -> UserError:
    return UserError(
        f"a tokenizer of kind '{kind}' cannot sample: each text has one segmentation only. "
        "Set tokenizer.sample_alpha = 0, or tokenizer.kind to 'bpe' or 'unigram'"
    )


def _check_special_tokens(special_tokens: tuple[str, ...]) -> None:
    for token in special_tokens:
        if not token or not token.isprintable() or " " in token or "▁" in token or len(token) > 100:
            raise UserError(f"tokenizer.special_tokens: {token!r} must be 1 to 100 visible characters without a space")
        if token in SPECIAL_PIECES or special_tokens.count(token) > 1:
            raise UserError(f"tokenizer.special_tokens: {token!r} is already a special token; name each one once")
