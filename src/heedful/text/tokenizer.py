"""The protocol of tokenizers, the pair of tokenizers that a model has, and the decoding of generated ids.

Public models round the size of their embedding up, so they can generate an id that the tokenizer has no piece for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heedful.text.special_ids import SpecialIds

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")  # in the order of their ids
MASK_PIECE = "<mask>"  # stands for a masked word, in tokenizers that have it among their special tokens

UNKNOWN_SIGN = "⁇"  # what `decode` returns for the unknown id


class Tokenizer(Protocol):
    """Text to ids and back: `decode(encode(x)) == normalize(x)`, unless a part of x is unknown.

    `encode` adds no special ids.
    """

    @property
    def kind(self) -> str:
        """The kind of pieces: word, char, bpe, unigram; in public models also wordpiece or wordlevel."""

    @property
    def vocab_size(self) -> int:
        """The number of ids: every id is in `range(vocab_size)`."""

    @property
    def special_ids(self) -> SpecialIds:
        """Which ids are special."""

    @property
    def can_sample(self) -> bool:
        """Whether `sample_batch` works. A run that samples must keep its text."""

    @property
    def fingerprint(self) -> str:
        """A hash of everything that ids depend on. It ties shards and weights to their tokenizer."""

    def normalize(self, text: str) -> str:
        """Return the text that `encode` encodes. Normalizing it again changes nothing."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text, without special ids."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return `[encode(text) for text in texts]`, faster."""

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        """Return the ids of one random segmentation of each text, which depends on the texts and the seed alone."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of the ids, without special tokens by default.

        With `skip_special_tokens=False` special tokens are written out, for people to read: `encode` need not read
        such a text back.
        """

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        """Return `[decode(ids) for ids in batch]`."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, as it is spelled in the vocabulary."""

    def id_of(self, piece: str) -> int:
        """Return the id of a piece or special token; a piece that is not in the vocabulary is a UserError."""

    def count_unknown(self, text: str) -> int:
        """Return how many unknown ids `encode` gives for a text."""

    def save(self, path: str | Path) -> None:
        """Write the vocabulary to one file."""


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a model's source and target; a joint tokenizer is both."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target


def decode_generated(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return generated ids as text; ids beyond the vocabulary are skipped, as Hugging Face does."""
    n = tokenizer.vocab_size
    return tokenizer.decode(ids if max(ids, default=0) < n else [id for id in ids if id < n])


def decode_with_specials(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return generated ids as text with special tokens written out; ids beyond the vocabulary are skipped."""
    return tokenizer.decode([id for id in ids if id < tokenizer.vocab_size], skip_special_tokens=False)


def generated_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the piece of each generated id; one beyond the vocabulary becomes its number, like <32001>."""
    n = tokenizer.vocab_size
    known = iter(tokenizer.pieces([id for id in ids if id < n]))
    return [next(known) if id < n else f"<{id}>" for id in ids]
