"""A chunk of a corpus on its way into a shard: encoded here, and packed into what a message carries."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from heedful.data.batching import IntArray
from heedful.text.tokenizer import Tokenizer

Chunk = tuple[Sequence[str], ...]  # the texts of the source, and of the target if there is one


@dataclass(frozen=True)
class SideFormat:
    """How one side is stored: ids of this type, or the text itself."""

    dtype: str
    keep_text: bool


class Encoded(NamedTuple):
    """The texts of one side of a chunk as the shard stores them, one after the other."""

    values: IntArray  # ids, or UTF-8 bytes where the text is kept
    sizes: IntArray  # how many values each text has
    lengths: IntArray  # how many ids each text has


def encode_side(texts: Sequence[str], tokenizer: Tokenizer, form: SideFormat, *, at_once: int | None = None) -> Encoded:
    """`at_once` texts go to the tokenizer together, by default all: for many it may start threads of its own."""
    step = at_once or max(1, len(texts))
    parts = (tokenizer.encode_batch(texts[begin : begin + step]) for begin in range(0, len(texts), step))
    ids = list(chain.from_iterable(parts))
    lengths = np.fromiter(map(len, ids), "<u4", len(ids))
    if form.keep_text:
        values, sizes = _join([tokenizer.normalize(text) for text in texts])
        return Encoded(values, sizes, lengths)
    flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum(dtype=np.int64)))
    # Narrowing would wrap around an id that is too large, and nobody would see it.
    assert not flat.size or 0 <= flat.min() <= flat.max() < tokenizer.vocab_size, "an id outside the vocabulary"
    return Encoded(flat.astype(form.dtype), lengths, lengths)


def _join(texts: Sequence[str]) -> tuple[IntArray, IntArray]:
    coded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(coded), np.uint8), np.fromiter(map(len, coded), "<u4", len(coded))


def pack_texts(chunk: Chunk) -> list[bytes]:
    return [array.tobytes() for texts in chunk for array in _join(texts)]


def unpack_texts(blobs: Sequence[bytes]) -> Chunk:
    sides = zip(blobs[::2], blobs[1::2], strict=True)
    return tuple(_cut(values, np.frombuffer(sizes, "<u4")) for values, sizes in sides)


def _cut(values: bytes, sizes: IntArray) -> list[str]:
    ends = np.cumsum(sizes, dtype=np.int64)
    return [values[begin:end].decode() for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


def pack_encoded(chunk: Sequence[Encoded]) -> list[bytes]:
    return [array.tobytes() for encoded in chunk for array in encoded]


def unpack_encoded(blobs: Sequence[bytes], forms: Sequence[SideFormat]) -> tuple[Encoded, ...]:
    return tuple(
        Encoded(
            np.frombuffer(values, np.uint8 if form.keep_text else form.dtype),
            np.frombuffer(sizes, "<u4"),
            np.frombuffer(lengths, "<u4"),
        )
        for form, values, sizes, lengths in zip(forms, blobs[::3], blobs[1::3], blobs[2::3], strict=True)
    )
