"""str <-> ids: tokenizers, special tokens, normalisation."""

from heedful.text.folder import has_tokenizers, load_tokenizer, load_tokenizers, save_tokenizers
from heedful.text.foreign_tokenizer import ForeignTokenizer
from heedful.text.learn import learn_tokenizer, learn_tokenizers
from heedful.text.normalise import Normaliser
from heedful.text.sentence_piece import SentencePieceTokenizer
from heedful.text.tokenizer import (
    MASK_PIECE,
    SPECIAL,
    SPECIAL_PIECES,
    UNKNOWN_SIGN,
    SpecialTokens,
    Tokenizer,
    Tokenizers,
)
from heedful.text.tokenizer_config import TokenizerConfig

__all__ = [
    "MASK_PIECE",
    "SPECIAL",
    "SPECIAL_PIECES",
    "UNKNOWN_SIGN",
    "ForeignTokenizer",
    "Normaliser",
    "SentencePieceTokenizer",
    "SpecialTokens",
    "Tokenizer",
    "TokenizerConfig",
    "Tokenizers",
    "has_tokenizers",
    "learn_tokenizer",
    "learn_tokenizers",
    "load_tokenizer",
    "load_tokenizers",
    "save_tokenizers",
]
