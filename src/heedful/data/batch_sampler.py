"""Which examples make which batch: pure functions of lengths and a seed.

The unit is the batch of one step over all ranks together, so that neither the number of ranks nor of loader workers nor
of micro-batches changes which examples a step sees. Lengths are those that stand in the batch, marks included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
import numpy.typing as npt

from heedful.data.seeding import IntArray, rng
from heedful.errors import UserError

# Batches that are sorted together. On Multi30k fewer than about a hundred push the real tokens below 95 %; many more
# only take memory, since every window is cut from a fresh shuffle of the whole corpus.
BATCHES_PER_WINDOW = 256
# Lengths are blurred by this many tokens before sorting, so that the same sentences do not meet in every epoch.
LENGTH_JITTER = 0.75

# Streams of random numbers that must not be alike although seed and epoch are.
_ORDER, _WINDOW, _SEQUENCE = range(3)


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch: `plan[i]` holds the example numbers of its i-th step, for all ranks together."""

    order: IntArray  # example numbers, batch beside batch
    starts: IntArray  # batch k is order[starts[k] : starts[k + 1]]
    sequence: IntArray  # the k of the first step, of the second, ...
    left_out: IntArray  # examples that fit into no batch, sorted

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
    """Cut an epoch into batches of like lengths, none above the ceiling.

    The ceiling counts padding: rows x longest target <= batch_tokens, and rows x longest source <= source_tokens (by
    default `source_ceiling`). An example above a ceiling, or longer than `max_len` on either side, is in no batch but
    in `plan.left_out`. `order` has the example numbers of the epoch (`epoch_order`), by default a shuffle of all.
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
    """The default ceiling for rows x longest source: twice what the corpus' own proportion would need.

    `batch_tokens` speaks of target tokens alone. The factor two keeps the source from deciding the size of an ordinary
    batch; the ceiling keeps a few long sources beside short targets from filling the memory.
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
    """True for each example that is short enough to be in some batch."""
    longest_target = batch_tokens if max_len is None else min(batch_tokens, max_len)
    longest_source = source_tokens if max_len is None else min(source_tokens, max_len)
    fits: npt.NDArray[np.bool_] = (target_lengths <= longest_target) & (source_lengths <= longest_source)
    return fits


def epoch_order(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> IntArray:
    """The example numbers of one epoch, shuffled; corpora are numbered one after the other.

    A corpus of n examples gives weight x n of them; what is over a whole number adds up until it is an example. It
    deals them from one shuffled pack after the other, and goes on in the next epoch where this one stopped: with weight
    1 each example comes once in each epoch, with weight 0.25 once in four epochs, with weight 2 twice in one.
    """
    if len(sizes) != len(weights):
        raise UserError(f"{len(sizes)} corpora but {len(weights)} weights: give one weight for each corpus")
    for weight in weights:
        if not 0 <= weight < float("inf"):
            raise UserError(f"a corpus has the weight {weight}: expected a number from 0 upwards, for example 0.5")
    kind = np.uint32 if sum(sizes) < 2**32 else np.int64  # half the memory for any corpus of this world
    dealt: list[IntArray] = []
    first = 0
    for corpus, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        numbers: IntArray = np.arange(first, first + size, dtype=kind)
        dealt += list(_deal(numbers, examples_per_epoch(size, weight), (seed, _ORDER, corpus), epoch))
        first += size
    order: IntArray = dealt[0] if len(dealt) == 1 else np.concatenate([np.zeros(0, kind), *dealt])
    if len(dealt) > 1:  # a single part is shuffled already
        rng(seed, _ORDER, len(sizes), epoch).shuffle(order)
    return order


def examples_per_epoch(size: int, weight: float) -> Fraction:
    """How many examples of a corpus an epoch has, whole or not: of 10 at the weight 0.3 exactly 3.

    The weight is the number that was written, not the binary one beside it: a little less than 3 would lose an example.
    """
    return size * Fraction(weight).limit_denominator(10**9)


def split_rows(source_lengths: IntArray, target_lengths: IntArray, n_parts: int) -> list[IntArray]:
    """Divide the rows of one batch over ranks or micro-batches: like lengths together, tokens in balance.

    Every row is in exactly one part. With fewer rows than parts the last parts are empty.
    """
    rows = np.lexsort((source_lengths, target_lengths))
    ends = np.cumsum(source_lengths[rows].astype(np.int64) + target_lengths[rows])
    total = ends[-1] if len(rows) else 0
    wanted = total * np.arange(1, n_parts) / n_parts
    cuts = np.searchsorted(ends, wanted, side="left") + 1  # a row belongs to the part in which it begins
    number = np.arange(1, n_parts)
    # No part stays empty for the sake of balance while another has rows to give: each cut is beyond the one before it,
    # and leaves a row for each part after it.
    cuts = np.maximum.accumulate(cuts - number) + number
    cuts = np.minimum(np.minimum(cuts, np.maximum(len(rows) - n_parts + number, number)), len(rows))
    return np.split(rows, cuts)


def real_share(plan: EpochPlan, lengths: IntArray) -> float:
    """The share of real tokens among all, padding included."""
    real = sum(int(lengths[batch].sum(dtype=np.int64)) for batch in plan)
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in plan)
    return real / max(1, padded)


def _deal(numbers: IntArray, share: Fraction, key: tuple[int, ...], epoch: int) -> Iterator[IntArray]:
    """The numbers that this epoch deals, `share` of them on average, from each shuffled pack that it touches."""
    begin, end = floor(epoch * share), floor((epoch + 1) * share)
    while begin < end:
        pack, offset = divmod(begin, len(numbers))
        shuffled = rng(*key, pack).permutation(numbers)
        part = shuffled[offset : offset + end - begin]
        yield part
        begin += len(part)


def _windows(order: IntArray, target_lengths: IntArray, batch_tokens: int) -> list[IntArray]:
    """The order in equal parts of about BATCHES_PER_WINDOW batches each, as views."""
    if not len(order):
        return []
    sample = order[:100_000]
    rows_per_batch = max(1.0, batch_tokens / max(1.0, float(target_lengths[sample].mean())))
    n_windows = max(1, round(len(order) / (rows_per_batch * BATCHES_PER_WINDOW)))
    return np.array_split(order, n_windows)


def _sort_by_length(source: IntArray, target: IntArray, random: np.random.Generator) -> IntArray:
    """Neighbours are alike on both sides: classes of the longer side, through each class from end to end and back.

    Both sides must be alike, and one sort can serve only one of them. Within a class of the longer side (the source
    scaled to the target's mean) the other side runs up in one class and down in the next, so that no jump is made.
    """
    scaled = source * (_total(target) / max(1, _total(source)))
    classes = np.ceil(np.maximum(target, scaled)).astype(np.int64)
    difference = target - scaled + random.uniform(-LENGTH_JITTER, LENGTH_JITTER, len(target))
    turn = int(random.integers(2))
    return np.lexsort((np.where(classes % 2 == turn, difference, -difference), classes))


def _cut(source: IntArray, target: IntArray, source_tokens: int, batch_tokens: int, first: float) -> IntArray:
    """Where each batch ends: as many rows as the ceilings allow, in the first batch only the share `first` of them.

    The first batch is random in size so that the cuts fall elsewhere in every epoch.
    """
    cuts: list[int] = []
    begin = 0
    while begin < len(target):
        most = begin + batch_tokens // max(1, int(target[begin]))
        rows = np.arange(1, min(most, len(target)) - begin + 1)
        longest_target = np.maximum.accumulate(target[begin:most])
        longest_source = np.maximum.accumulate(source[begin:most])
        # Both products only grow with the rows, so the allowed rows are a prefix.
        fits = (rows * longest_target <= batch_tokens) & (rows * longest_source <= source_tokens)
        allowed = int(np.count_nonzero(fits))
        begin += allowed if cuts else max(1, int(allowed * first))
        cuts.append(begin)
    return np.array(cuts, np.int64)


def _total(lengths: IntArray) -> int:
    return int(lengths.sum(dtype=np.int64))
