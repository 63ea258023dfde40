"""Confidence intervals of scores by bootstrap, and p-values of differences by approximate randomisation.

With the same seed, the random numbers and the intervals are equal to sacreBLEU's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.errors import UserError
from heedful.evaluation.metrics import Counts, FloatArray, Interval

RESAMPLES, TRIALS, SEED = 1_000, 10_000, 12_345  # sacreBLEU's defaults
LARGEST_BLOCK = 1 << 22  # random numbers in memory at a time
WORD = 32  # NumPy draws booleans from words of 32 bits; blocks that end within a word would change the draws
TIE = 1e-9  # scores that differ by less are equal but for rounding


@dataclass(frozen=True)
class Comparison:
    """The difference between the scores of two outputs, by one metric."""

    name: str
    difference: float  # score of the first output minus score of the second
    interval: Interval  # of the difference, with the same resamples for both outputs
    p_value: float  # probability of a difference at least as large, in either direction, by chance alone


def intervals(metrics: Sequence[Counts], *, n_resamples: int = RESAMPLES, seed: int = SEED) -> list[Interval]:
    """Return the confidence interval of each metric by bootstrap; all metrics share the resamples of sentences."""
    return [_interval(scores) for scores in _bootstrap_scores(metrics, n_resamples, seed)]


def compare(
    ours: Sequence[Counts],
    others: Sequence[Counts],
    *,
    n_resamples: int = RESAMPLES,
    n_trials: int = TRIALS,
    seed: int = SEED,
) -> list[Comparison]:
    """Compare two outputs for the same sentences, metric by metric.

    The interval is by paired bootstrap, the p-value by paired approximate randomisation (Riezler & Maxwell 2005).
    """
    for a, b in zip(ours, others, strict=True):
        if a.signature != b.signature or a.rows.shape != b.rows.shape:
            raise UserError(
                f"{a.name} ({a.signature}) of {len(a.rows):,} sentences and {b.name} ({b.signature}) of "
                f"{len(b.rows):,} cannot be compared: compute both with the same options on the same sentences"
            )
    scores = _bootstrap_scores([*ours, *others], n_resamples, seed)
    differences = [a - b for a, b in zip(scores[: len(ours)], scores[len(ours) :], strict=True)]
    return [
        Comparison(a.name, a.value - b.value, _interval(difference), p_value)
        for a, b, difference, p_value in zip(
            ours, others, differences, _p_values(ours, others, n_trials, seed), strict=True
        )
    ]


def _interval(scores: FloatArray) -> Interval:
    ordered = np.sort(scores)
    cut = len(ordered) // 40  # 2.5 % at each end
    return Interval(float(ordered[cut]), float(ordered[len(ordered) - cut - 1]), float(ordered.mean()))


def _bootstrap_scores(metrics: Sequence[Counts], n_resamples: int, seed: int) -> list[FloatArray]:
    """Return for each metric the scores of all resamples: (n_resamples,)."""
    joined, n_sentences = np.concatenate([metric.rows for metric in metrics], axis=1), len(metrics[0].rows)
    random, blocks = np.random.default_rng(seed), []
    for size in _blocks(n_resamples, n_sentences, unit=1):
        drawn = random.choice(n_sentences, size=(size, n_sentences), replace=True)  # indices of sentences
        # How often each sentence was drawn; one product with all counts gives the sums of all resamples.
        weights = np.stack([np.bincount(row, minlength=n_sentences) for row in drawn]).astype(np.float64)
        blocks.append(weights @ joined)
    return _scores(metrics, np.concatenate(blocks))


def _p_values(ours: Sequence[Counts], others: Sequence[Counts], n_trials: int, seed: int) -> list[float]:
    """Return for each metric the share of trials with a difference at least as large as the observed one.

    A trial exchanges the two translations of each sentence with probability 1/2. sacreBLEU counts only trials with a
    larger difference. Here equal differences count too, so that two equal outputs have p = 1 instead of 0.0001.
    """
    a, b = (np.concatenate([metric.rows for metric in side], axis=1) for side in (ours, others))
    total, random = a.sum(axis=0) + b.sum(axis=0), np.random.default_rng(seed)
    n_extreme = np.zeros(len(ours))
    observed = np.array([abs(x.value - y.value) for x, y in zip(ours, others, strict=True)])
    for size in _blocks(n_trials, len(a), unit=WORD):
        is_kept = random.integers(2, size=(size, len(a)), dtype=bool)
        mixed = is_kept.astype(np.float64) @ (a - b) + b.sum(axis=0)
        first, second = _scores(ours, mixed), _scores(ours, total - mixed)
        differences = np.array([np.abs(x - y) for x, y in zip(first, second, strict=True)])  # (metrics, trials)
        n_extreme += (differences >= observed[:, None] - TIE).sum(axis=1)
    return [float(p_value) for p_value in (n_extreme + 1) / (n_trials + 1)]


def _scores(metrics: Sequence[Counts], sums: FloatArray) -> list[FloatArray]:
    """Turn the sums of all metrics side by side, (n_draws, n_counts), into scores of each metric, (n_draws,)."""
    ends = np.cumsum([metric.rows.shape[1] for metric in metrics])
    parts = np.split(sums, ends[:-1], axis=1)
    return [metric.formula(part) for metric, part in zip(metrics, parts, strict=True)]


def _blocks(n_draws: int, n_sentences: int, *, unit: int) -> Iterator[int]:
    """Yield the sizes of blocks of draws that fit into memory; all but the last are multiples of `unit`."""
    if n_draws < 1:
        raise UserError(f"n_resamples or n_trials is {n_draws}: must be at least 1; 1,000 or more is usual")
    size = max(1, LARGEST_BLOCK // (n_sentences * unit)) * unit
    for start in range(0, n_draws, size):
        yield min(size, n_draws - start)
