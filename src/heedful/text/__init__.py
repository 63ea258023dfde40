"""str <-> ids: tokenizers, special tokens, normalisation."""

from heedful.text.hf_tokenizer import HFTokenizer
from heedful.text.normalize import Normalizer
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.special_ids import SPECIAL_IDS, SpecialIds
from heedful.text.tokenizer import (
    MASK_PIECE,
    SPECIAL_PIECES,
    UNKNOWN_SIGN,
    Tokenizer,
    Tokenizers,
)
from heedful.text.tokenizer_config import TokenizerConfig
from heedful.text.tokenizer_files import has_tokenizers, load_tokenizer, load_tokenizers, save_tokenizers
from heedful.text.train_tokenizer import learn_tokenizer, learn_tokenizers

__all__ = [
    "MASK_PIECE",
    "SPECIAL_IDS",
    "SPECIAL_PIECES",
    "UNKNOWN_SIGN",
    "HFTokenizer",
    "Normalizer",
    "SentencePieceTokenizer",
    "SpecialIds",
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
