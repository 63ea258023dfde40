"""Prepared sentence pairs as batches; where the shards keep text, segmentations are sampled here."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from heedful.data.batch import Batch, collate
from heedful.data.batching import IntArray, derived_seed
from heedful.data.shards import Shards, Side
from heedful.errors import UserError
from heedful.text import SPECIAL, Tokenizer, Tokenizers
from heedful.text.tokenizer import SpecialTokens

# A sampled text that is longer than was planned for is drawn so often, then segmented plainly.
ATTEMPTS = 4

T = TypeVar("T")


class Pairs:
    """The pairs of one or more corpora, numbered one corpus after the other.

    Lengths are those in the batch: one more than the ids, for the mark; for text that will be sampled an upper limit.
    """

    def __init__(
        self,
        shards: Shards | Sequence[Shards],
        *,
        tokenizers: Tokenizers | None = None,
        pin_memory: bool = False,
        special: SpecialTokens = SPECIAL,
        first: int | None = None,
    ) -> None:
        self.shards = [shards] if isinstance(shards, Shards) else list(shards)
        _check(self.shards, tokenizers)
        self.tokenizers = tokenizers if self.shards[0].keep_text else None
        self.pin_memory = pin_memory
        self.special = special
        self.first = [] if first is None else [first]  # stands before each source and each target, as BART's <s>
        self.keys = [one.key for one in self.shards]
        self.sizes = [len(one) for one in self.shards]
        n_marks = 1 + len(self.first)
        self.source_lengths = _lengths([one.source for one in self.shards], n_marks)
        self.target_lengths = _lengths([_target(one) for one in self.shards], n_marks)
        self._firsts = np.cumsum([0, *self.sizes])

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> Batch:
        """Some rows of the step that consists of the examples `indices`; `seed` is the step's own.

        Segmentations are drawn for the whole step, then the rows are taken: a row has the same ids whatever the number
        of ranks.
        """
        chosen = indices[rows]
        if self.tokenizers is None:
            sources = self._read(chosen, lambda shards, numbers: shards.source.ids(numbers))
            targets = self._read(chosen, lambda shards, numbers: _target(shards).ids(numbers))
        else:
            texts = self._read(indices, lambda shards, numbers: shards.source.texts(numbers))
            n_marks = 1 + len(self.first)
            limits = self.source_lengths[indices] - n_marks
            sources = _sample(self.tokenizers.source, texts, limits, seed=derived_seed(seed, 0))
            texts = self._read(indices, lambda shards, numbers: _target(shards).texts(numbers))
            limits = self.target_lengths[indices] - n_marks
            targets = _sample(self.tokenizers.target, texts, limits, seed=derived_seed(seed, 1))
            sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        if self.first:
            sources, targets = ([np.concatenate([self.first, ids]) for ids in side] for side in (sources, targets))
        batch = collate(sources, targets, chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch

    def place(self, index: int) -> tuple[int, int]:
        """(number of the corpus, number of the example in it)."""
        corpus = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return corpus, int(index - self._firsts[corpus])

    def _read(self, indices: IntArray, read: Callable[[Shards, IntArray], list[T]]) -> list[T]:
        if len(self.shards) == 1:
            return read(self.shards[0], indices)
        found: dict[int, T] = {}
        for shards, first in zip(self.shards, self._firsts, strict=False):
            rows = np.flatnonzero((indices >= first) & (indices < first + len(shards)))
            found.update(zip(rows.tolist(), read(shards, indices[rows] - first), strict=True))
        return [found[row] for row in range(len(indices))]


def _check(shards: Sequence[Shards], tokenizers: Tokenizers | None) -> None:
    if not shards:
        raise UserError("no corpus was given")
    first = shards[0].manifest
    for one in shards:
        if one.target is None:
            raise UserError(f"{one.folder}: holds plain text, where pairs are needed")
        if (one.manifest.tokenizers, one.keep_text) != (first.tokenizers, first.keep_text):
            raise UserError(
                f"{one.folder} and {shards[0].folder}: prepared with different tokenizers or options; prepare both anew"
            )
    if first.keep_text:
        if tokenizers is None:
            raise UserError(f"{shards[0].folder}: keeps text to be sampled; the tokenizers are needed to read it")
        if (tokenizers.source.fingerprint, tokenizers.target.fingerprint) != first.tokenizers:
            raise UserError(f"{shards[0].folder}: was prepared with other tokenizers than those given")


def _target(shards: Shards) -> Side:
    assert shards.target is not None  # _check has seen to it
    return shards.target


def _lengths(sides: Sequence[Side], n_marks: int) -> IntArray:
    lengths = [side.planned_lengths for side in sides]
    joined = lengths[0] if len(lengths) == 1 else np.concatenate(lengths)
    joined += n_marks
    return joined


def _sample(tokenizer: Tokenizer, texts: list[str], limits: IntArray, *, seed: int) -> list[IntArray]:
    """A random segmentation of each text, within its limit: the ceiling of a batch holds for sampled text too."""
    if not tokenizer.can_sample:
        return [np.array(ids, np.int64) for ids in tokenizer.encode_batch(texts)]
    drawn: list[list[int]] = [[] for _ in texts]
    wanted = list(range(len(texts)))
    for attempt in range(ATTEMPTS + 1):
        again = [texts[row] for row in wanted]
        last = attempt == ATTEMPTS
        new = tokenizer.encode_batch(again) if last else tokenizer.sample_batch(again, seed=derived_seed(seed, attempt))
        for row, ids in zip(wanted, new, strict=True):
            drawn[row] = ids
        wanted = [row for row in wanted if len(drawn[row]) > limits[row]]
        if not wanted:
            break
    return [np.array(ids, np.int64) for ids in drawn]
