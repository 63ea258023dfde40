"""How sure a score is, and whether a difference is more than chance: by drawing the test set again and again.

With the same seed the draws are sacreBLEU's, and so are the intervals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.errors import UserError
from heedful.evaluation.metrics import Counts, FloatArray, Interval

RESAMPLES, TRIALS, SEED = 1_000, 10_000, 12_345  # sacreBLEU's defaults
LARGEST_BLOCK = 1 << 22  # numbers in memory at a time
WORD = 32  # booleans are drawn from words of so many bits: a block ends where a word does
TIE = 1e-9  # two scores that differ by less are the same, rounded twice


@dataclass(frozen=True)
class Comparison:
    """One output against another, by one metric."""

    name: str
    difference: float  # the first's score minus the other's
    interval: Interval  # of the difference, on the same resamples for both
    p_value: float  # how often mere chance would give a difference as large, in either direction


def intervals(metrics: Sequence[Counts], *, n_resamples: int = RESAMPLES, seed: int = SEED) -> list[Interval]:
    """The interval of each metric, by bootstrap: sentences are drawn with replacement, the same for all metrics."""
    return [_interval(scores) for scores in _resampled(metrics, n_resamples, seed)]


def compare(
    ours: Sequence[Counts],
    others: Sequence[Counts],
    *,
    n_resamples: int = RESAMPLES,
    n_trials: int = TRIALS,
    seed: int = SEED,
) -> list[Comparison]:
    """Paired: the interval by bootstrap, the p-value by approximate randomisation (Riezler & Maxwell 2005)."""
    for a, b in zip(ours, others, strict=True):
        if a.signature != b.signature or a.rows.shape != b.rows.shape:
            raise UserError(f"{a.name} ({a.signature}) and {b.name} ({b.signature}) cannot be compared")
    scores = _resampled([*ours, *others], n_resamples, seed)
    differences = [a - b for a, b in zip(scores[: len(ours)], scores[len(ours) :], strict=True)]
    return [
        Comparison(a.name, a.value - b.value, _interval(difference), p_value)
        for a, b, difference, p_value in zip(
            ours, others, differences, _randomised(ours, others, n_trials, seed), strict=True
        )
    ]


def _interval(scores: FloatArray) -> Interval:
    ordered = np.sort(scores)
    cut = len(ordered) // 40  # 2.5 % at each end
    return Interval(float(ordered[cut]), float(ordered[len(ordered) - cut - 1]), float(ordered.mean()))


def _resampled(metrics: Sequence[Counts], n_resamples: int, seed: int) -> list[FloatArray]:
    """The scores of each resample (n_resamples,), for each metric."""
    joined, n_sentences = np.concatenate([metric.rows for metric in metrics], axis=1), len(metrics[0].rows)
    random, blocks = np.random.default_rng(seed), []
    for size in _blocks(n_resamples, n_sentences, unit=1):
        drawn = random.choice(n_sentences, size=(size, n_sentences), replace=True)
        # How often each sentence was drawn: as weights, they make the sums of all metrics in one product.
        weights = np.stack([np.bincount(row, minlength=n_sentences) for row in drawn]).astype(np.float64)
        blocks.append(weights @ joined)
    return _scores(metrics, np.concatenate(blocks))


def _randomised(ours: Sequence[Counts], others: Sequence[Counts], n_trials: int, seed: int) -> list[float]:
    """Exchange the two outputs sentence by sentence, at random: how often is the difference as large as the real one?

    Where sacreBLEU counts only larger ones, this counts equal ones too: two outputs that are alike differ by nothing
    in every trial, and their p-value is 1, not 0.0001.
    """
    a, b = (np.concatenate([metric.rows for metric in side], axis=1) for side in (ours, others))
    total, random = a.sum(axis=0) + b.sum(axis=0), np.random.default_rng(seed)
    found = np.zeros(len(ours))
    real = np.array([abs(x.value - y.value) for x, y in zip(ours, others, strict=True)])
    for size in _blocks(n_trials, len(a), unit=WORD):
        kept = random.integers(2, size=(size, len(a)), dtype=bool)
        mixed = kept.astype(np.float64) @ (a - b) + b.sum(axis=0)
        first, second = _scores(ours, mixed), _scores(ours, total - mixed)
        differences = np.array([np.abs(x - y) for x, y in zip(first, second, strict=True)])  # (metrics, trials)
        found += (differences >= real[:, None] - TIE).sum(axis=1)
    return [float(p_value) for p_value in (found + 1) / (n_trials + 1)]


def _scores(metrics: Sequence[Counts], sums: FloatArray) -> list[FloatArray]:
    """Sums of all metrics side by side (draws, counts) -> the scores of each (draws,)."""
    ends = np.cumsum([metric.rows.shape[1] for metric in metrics])
    parts = np.split(sums, ends[:-1], axis=1)
    return [metric.formula(part) for metric, part in zip(metrics, parts, strict=True)]


def _blocks(n_draws: int, n_sentences: int, *, unit: int) -> Iterator[int]:
    """Draws in blocks that fit into memory, each but the last a multiple of `unit`."""
    if n_draws < 1:
        raise UserError(f"{n_draws} draws: at least one is needed, a thousand are usual")
    size = max(1, LARGEST_BLOCK // (n_sentences * unit)) * unit
    for start in range(0, n_draws, size):
        yield min(size, n_draws - start)
