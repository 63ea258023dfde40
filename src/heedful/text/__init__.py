"""Text to ids and back: tokenizers, special ids, normalization.

tokenizer                 the Tokenizer protocol; decoding of generated ids
tokenizer_config          the settings of a tokenizer
normalize                 Unicode form, lower case, whitespace
special_ids               which ids are special, and where a model has them
train_tokenizer           learn a vocabulary from text
sentencepiece_tokenizer   the tokenizers that heedful learns
sentencepiece_model       read and check a SentencePiece file
subword_regularization    random segmentations for training
hf_tokenizer              tokenizers of Hugging Face's, from a tokenizer.json
marian_tokenizer          the tokenizers of OPUS-MT
tokenizer_files           save and load the tokenizers of a model folder
"""

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
