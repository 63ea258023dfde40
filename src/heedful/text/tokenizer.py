"""What the rest of heedful knows of tokenizers: str on one side, ids on the other.

What a model wrote. Public models round the size of their tables up, so it may be an id that no piece belongs to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heedful.text.special_ids import SpecialIds

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")  # in the order of their ids
MASK_PIECE = "<mask>"  # the symbol, if it is among a tokenizer's, that stands for a hidden word

UNKNOWN_SIGN = "⁇"  # what `decode` writes for the unknown id: visible, and one character


class Tokenizer(Protocol):
    """`decode(encode(x)) == normalize(x)`, save for unknowns where there are any; `encode` adds no special ids."""

    @property
    def kind(self) -> str:
        """How it cuts: word, char, bpe, unigram; tokenizers of public models also wordpiece or wordlevel."""

    @property
    def vocab_size(self) -> int:
        """The number of ids: every id is in `range(vocab_size)`."""

    @property
    def special_ids(self) -> SpecialIds:
        """The ids that are not text."""

    @property
    def can_sample(self) -> bool:
        """Whether `sample_batch` works: a run that samples must keep its text."""

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change an id: binds shards and weights to their tokenizer."""

    def normalize(self, text: str) -> str:
        """The text that `encode` really encodes; idempotent."""

    def encode(self, text: str) -> list[int]:
        """The ids of one text, without special ids."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`[encode(text) for text in texts]`, faster."""

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        """One random segmentation of each text; a function of the texts and the seed alone."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of the ids, without special tokens by default.

        With `skip_special_tokens=False` special tokens are written out, for people to read: `encode` need not read
        such a text back.
        """

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        """`[decode(ids) for ids in batch]`."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """How each id is written in the vocabulary, for people to look at."""

    def id_of(self, piece: str) -> int:
        """The id of one piece or symbol of the vocabulary."""

    def count_unknown(self, text: str) -> int:
        """How many unknowns `encode` puts in place of text."""

    def save(self, path: str | Path) -> None:
        """Write the vocabulary to one file."""


@dataclass(frozen=True)
class Tokenizers:
    """One for each side of a model; a joint one stands on both."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target


def decode_generated(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The ids as text; those of spare rows are none, as in Hugging Face."""
    n = tokenizer.vocab_size
    return tokenizer.decode(ids if max(ids, default=0) < n else [id for id in ids if id < n])


def decode_with_specials(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The same, special pieces written out."""
    return tokenizer.decode([id for id in ids if id < tokenizer.vocab_size], skip_special_tokens=False)


def generated_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """How each id is written; that of a spare row as its number."""
    n = tokenizer.vocab_size
    known = iter(tokenizer.pieces([id for id in ids if id < n]))
    return [next(known) if id < n else f"<{id}>" for id in ids]
