"""Confidence intervals of scores, and tests of differences, by resampling the test set.

With the same seed, the resamples and intervals are those of sacreBLEU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.errors import UserError
from heedful.evaluation.metrics import Counts, FloatArray, Interval

RESAMPLES, TRIALS, SEED = 1_000, 10_000, 12_345  # sacreBLEU's defaults
LARGEST_BLOCK = 1 << 22  # numbers in memory at a time
WORD = 32  # random booleans come from words of 32 bits; blocks of draws end where a word ends
TIE = 1e-9  # scores that differ by less are equal up to rounding


@dataclass(frozen=True)
class Comparison:
    """The difference of two outputs in one metric."""

    name: str
    difference: float  # the score of the first output minus that of the other
    interval: Interval  # of the difference, on the same resamples for both
    p_value: float  # the probability of a difference at least as large by chance, in either direction


def intervals(metrics: Sequence[Counts], *, n_resamples: int = RESAMPLES, seed: int = SEED) -> list[Interval]:
    """Return the interval of each metric, by bootstrap: the same sentences are drawn for all metrics."""
    return [_interval(scores) for scores in _resampled(metrics, n_resamples, seed)]


def compare(
    ours: Sequence[Counts],
    others: Sequence[Counts],
    *,
    n_resamples: int = RESAMPLES,
    n_trials: int = TRIALS,
    seed: int = SEED,
) -> list[Comparison]:
    """Compare outputs: paired bootstrap, and approximate randomisation for p-values (Riezler, Maxwell 2005)."""
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
    """Return for each metric the scores of the resamples, (n_resamples,)."""
    joined, n_sentences = np.concatenate([metric.rows for metric in metrics], axis=1), len(metrics[0].rows)
    random, blocks = np.random.default_rng(seed), []
    for size in _blocks(n_resamples, n_sentences, unit=1):
        drawn = random.choice(n_sentences, size=(size, n_sentences), replace=True)
        # With the number of times each sentence was drawn, one product computes the sums of all metrics.
        weights = np.stack([np.bincount(row, minlength=n_sentences) for row in drawn]).astype(np.float64)
        blocks.append(weights @ joined)
    return _scores(metrics, np.concatenate(blocks))


def _randomised(ours: Sequence[Counts], others: Sequence[Counts], n_trials: int, seed: int) -> list[float]:
    """Exchange sentences of the two outputs at random, and count how often the difference is as large as the real one.

    sacreBLEU counts only larger differences; this counts equal ones too, so that the p-value of two equal outputs is 1
    instead of 0.0001.
    """
    a, b = (np.concatenate([metric.rows for metric in side], axis=1) for side in (ours, others))
    total, random = a.sum(axis=0) + b.sum(axis=0), np.random.default_rng(seed)
    counts = np.zeros(len(ours))
    real = np.array([abs(x.value - y.value) for x, y in zip(ours, others, strict=True)])
    for size in _blocks(n_trials, len(a), unit=WORD):
        kept = random.integers(2, size=(size, len(a)), dtype=bool)
        mixed = kept.astype(np.float64) @ (a - b) + b.sum(axis=0)
        first, second = _scores(ours, mixed), _scores(ours, total - mixed)
        differences = np.array([np.abs(x - y) for x, y in zip(first, second, strict=True)])  # (metrics, trials)
        counts += (differences >= real[:, None] - TIE).sum(axis=1)
    return [float(p_value) for p_value in (counts + 1) / (n_trials + 1)]


def _scores(metrics: Sequence[Counts], sums: FloatArray) -> list[FloatArray]:
    """Turn the sums of all metrics, (draws, counts) side by side, into the scores of each, (draws,)."""
    ends = np.cumsum([metric.rows.shape[1] for metric in metrics])
    parts = np.split(sums, ends[:-1], axis=1)
    return [metric.formula(part) for metric, part in zip(metrics, parts, strict=True)]


def _blocks(n_draws: int, n_sentences: int, *, unit: int) -> Iterator[int]:
    """Yield the sizes of blocks of draws that fit into memory; all but the last are multiples of `unit`."""
    if n_draws < 1:
        raise UserError(f"{n_draws} draws: at least 1 is needed, and 1,000 are usual")
    size = max(1, LARGEST_BLOCK // (n_sentences * unit)) * unit
    for start in range(0, n_draws, size):
        yield min(size, n_draws - start)
