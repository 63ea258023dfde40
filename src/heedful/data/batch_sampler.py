"""Divide the examples of an epoch into batches with a token budget: pure functions of the lengths and a seed.

A batch is that of one training step, of all ranks together: so the number of ranks, of loader workers and of
micro-batches does not change which examples a step has. Lengths include the special tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
import numpy.typing as npt

from heedful.data.seeding import IntArray, rng
from heedful.errors import UserError

# Number of batches whose examples are sorted together. With fewer than about a hundred, padding exceeds 5 % on
# Multi30k; many more only take memory, because windows are cut from a new shuffle of the whole corpus in every epoch.
BATCHES_PER_WINDOW = 256
# Random noise, in tokens, added to the lengths before sorting: otherwise the same sentences would often share a batch.
LENGTH_JITTER = 0.75

# Keys that make random streams differ for equal seed and epoch.
_ORDER, _WINDOW, _SEQUENCE = range(3)


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch: `plan[i]` is the array of the example numbers of step i, for all ranks together."""

    order: IntArray  # example numbers, one batch after the other
    starts: IntArray  # batch k is order[starts[k] : starts[k + 1]]
    sequence: IntArray  # the batch k of each step
    left_out: IntArray  # examples that are too long for any batch, sorted

    def __len__(self) -> int:
        return len(self.sequence)

    def __getitem__(self, step: int) -> IntArray:
        k = self.sequence[step]
        return self.order[self.starts[k] : self.starts[k + 1]]

    def __iter__(self) -> Iterator[IntArray]:
        return (self[step] for step in range(len(self)))


def plan_batches(
    source_lengths: IntArray,
    target_lengths: IntArray,
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    source_tokens: int | None = None,
    max_len: int | None = None,
    order: IntArray | None = None,
) -> EpochPlan:
    """Divide an epoch into batches of examples with similar lengths, none above the token budget.

    The budget counts padding: rows x longest target <= batch_tokens, and rows x longest source <= source_tokens (by
    default `source_ceiling`). An example above the budget, or longer than `max_len` on either side, is in no batch but
    in `plan.left_out`. `order` is the example numbers of the epoch (`epoch_order`), by default a shuffle of all.

    >>> lengths = np.array([3, 9, 4, 8])
    >>> plan = plan_batches(lengths, lengths, batch_tokens=18, seed=1, epoch=0)
    >>> all(len(batch) * lengths[batch].max() <= 18 for batch in plan)
    True
    >>> sorted(i for batch in plan for i in batch.tolist())
    [0, 1, 2, 3]
    """
    if source_tokens is None:
        source_tokens = source_ceiling(source_lengths, target_lengths, batch_tokens=batch_tokens)
    if order is None:
        order = epoch_order([len(target_lengths)], [1.0], seed=seed, epoch=epoch)
    fits = fits_budget(
        source_lengths, target_lengths, batch_tokens=batch_tokens, source_tokens=source_tokens, max_len=max_len
    )
    order = order[fits[order]]
    starts = [np.zeros(1, np.int64)]
    for number, window in enumerate(_windows(order, target_lengths, batch_tokens)):
        random = rng(seed, _WINDOW, epoch, number)
        window[:] = window[_sort_by_length(source_lengths[window], target_lengths[window], random)]
        cuts = _cut(source_lengths[window], target_lengths[window], source_tokens, batch_tokens, random.random())
        starts.append(starts[-1][-1] + cuts)
    joined = np.concatenate(starts)
    sequence = rng(seed, _SEQUENCE, epoch).permutation(len(joined) - 1)
    return EpochPlan(order=order, starts=joined, sequence=sequence, left_out=np.flatnonzero(~fits))


def source_ceiling(source_lengths: IntArray, target_lengths: IntArray, *, batch_tokens: int) -> int:
    """Compute the default budget for rows x longest source: 2 x batch_tokens x (source tokens / target tokens).

    `batch_tokens` counts target tokens only. With the factor two, sources do not limit the size of ordinary batches;
    the limit keeps a few long sources with short targets from filling the memory.
    """
    proportion = _total(source_lengths) / max(1, _total(target_lengths))
    return int(np.ceil(2 * batch_tokens * max(1.0, proportion)))


def fits_budget(
    source_lengths: IntArray,
    target_lengths: IntArray,
    *,
    batch_tokens: int,
    source_tokens: int,
    max_len: int | None = None,
) -> npt.NDArray[np.bool_]:
    """Return True for each example that is short enough for a batch."""
    longest_target = batch_tokens if max_len is None else min(batch_tokens, max_len)
    longest_source = source_tokens if max_len is None else min(source_tokens, max_len)
    fits: npt.NDArray[np.bool_] = (target_lengths <= longest_target) & (source_lengths <= longest_source)
    return fits


def epoch_order(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> IntArray:
    """Shuffle the example numbers of one epoch; examples are numbered one corpus after the other.

    A corpus of n examples contributes weight x n of them; fractions add up over the epochs. They are taken from one
    permutation of the corpus after the other, and an epoch continues where the last one stopped: with weight 1 each
    example occurs once in an epoch, with weight 0.25 once in four epochs, with weight 2 twice in an epoch.
    """
    if len(sizes) != len(weights):
        raise UserError(f"{len(sizes)} corpora, but {len(weights)} weights: give one weight for each corpus")
    for weight in weights:
        if not 0 <= weight < float("inf"):
            raise UserError(f"a corpus has the weight {weight}: expected a number from 0 upwards, for example 0.5")
    kind = np.uint32 if sum(sizes) < 2**32 else np.int64  # half the memory, for any real corpus
    parts: list[IntArray] = []
    first = 0
    for corpus, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        numbers: IntArray = np.arange(first, first + size, dtype=kind)
        parts += list(_deal(numbers, examples_per_epoch(size, weight), (seed, _ORDER, corpus), epoch))
        first += size
    order: IntArray = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])
    if len(parts) > 1:  # a single part is shuffled already
        rng(seed, _ORDER, len(sizes), epoch).shuffle(order)
    return order


def examples_per_epoch(size: int, weight: float) -> Fraction:
    """Compute the number of examples that a corpus contributes to an epoch, as an exact fraction.

    The weight counts as the decimal number that was written: as a binary float, 0.3 x 10 might be less than 3, and an
    example would be lost.

    >>> examples_per_epoch(10, 0.3)
    Fraction(3, 1)
    """
    return size * Fraction(weight).limit_denominator(10**9)


def split_rows(source_lengths: IntArray, target_lengths: IntArray, n_parts: int) -> list[IntArray]:
    """Divide the rows of one batch among ranks or micro-batches, with similar lengths together and tokens balanced.

    Each row is in exactly one part. With fewer rows than parts, the last parts are empty.
    """
    rows = np.lexsort((source_lengths, target_lengths))
    ends = np.cumsum(source_lengths[rows].astype(np.int64) + target_lengths[rows])
    total = ends[-1] if len(rows) else 0
    balanced = total * np.arange(1, n_parts) / n_parts
    cuts = np.searchsorted(ends, balanced, side="left") + 1  # a row belongs to the part in which it begins
    number = np.arange(1, n_parts)
    # No part is empty if there are enough rows: each cut is at least one row after the previous one, and leaves one
    # row for each part after it.
    cuts = np.maximum.accumulate(cuts - number) + number
    cuts = np.minimum(np.minimum(cuts, np.maximum(len(rows) - n_parts + number, number)), len(rows))
    return np.split(rows, cuts)


def real_share(plan: EpochPlan, lengths: IntArray) -> float:
    """Compute the share of tokens that are not padding."""
    real = sum(int(lengths[batch].sum(dtype=np.int64)) for batch in plan)
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in plan)
    return real / max(1, padded)


def _deal(numbers: IntArray, share: Fraction, key: tuple[int, ...], epoch: int) -> Iterator[IntArray]:
    """Yield the examples of an epoch, on average the fraction `share` of all.

    Epochs are consecutive slices of an endless sequence of permutations, so an epoch may span several of them.
    """
    begin, end = floor(epoch * share), floor((epoch + 1) * share)
    while begin < end:
        permutation, offset = divmod(begin, len(numbers))
        shuffled = rng(*key, permutation).permutation(numbers)
        part = shuffled[offset : offset + end - begin]
        yield part
        begin += len(part)


def _windows(order: IntArray, target_lengths: IntArray, batch_tokens: int) -> list[IntArray]:
    """Divide the order into equal views of about BATCHES_PER_WINDOW batches each."""
    if not len(order):
        return []
    sample = order[:100_000]
    rows_per_batch = max(1.0, batch_tokens / max(1.0, float(target_lengths[sample].mean())))
    n_windows = max(1, round(len(order) / (rows_per_batch * BATCHES_PER_WINDOW)))
    return np.array_split(order, n_windows)


def _sort_by_length(source: IntArray, target: IntArray, random: np.random.Generator) -> IntArray:
    """Sort examples so that neighbours have similar lengths on both sides; return their order.

    Examples are sorted by the length of the longer side (the source scaled to the target's mean). Among equal lengths,
    the other side is sorted upwards and downwards in turn, so that it does not jump from one length to the next.
    """
    scaled = source * (_total(target) / max(1, _total(source)))
    classes = np.ceil(np.maximum(target, scaled)).astype(np.int64)
    difference = target - scaled + random.uniform(-LENGTH_JITTER, LENGTH_JITTER, len(target))
    turn = int(random.integers(2))
    return np.lexsort((np.where(classes % 2 == turn, difference, -difference), classes))


def _cut(source: IntArray, target: IntArray, source_tokens: int, batch_tokens: int, first: float) -> IntArray:
    """Find the end of each batch: it takes as many rows as the budgets allow, the first one only the share `first`.

    The first batch has a random size so that examples are grouped differently in every epoch.
    """
    cuts: list[int] = []
    begin = 0
    while begin < len(target):
        most = begin + batch_tokens // max(1, int(target[begin]))
        rows = np.arange(1, min(most, len(target)) - begin + 1)
        longest_target = np.maximum.accumulate(target[begin:most])
        longest_source = np.maximum.accumulate(source[begin:most])
        # Both products grow with the number of rows, so the allowed rows are a prefix.
        fits = (rows * longest_target <= batch_tokens) & (rows * longest_source <= source_tokens)
        allowed = int(np.count_nonzero(fits))
        begin += allowed if cuts else max(1, int(allowed * first))
        cuts.append(begin)
    return np.array(cuts, np.int64)


def _total(lengths: IntArray) -> int:
    return int(lengths.sum(dtype=np.int64))
