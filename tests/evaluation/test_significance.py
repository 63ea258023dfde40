"""Confidence intervals and p-values: equal to sacreBLEU's, and right for planted and absent differences."""

import time

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from evaluation_outputs import references, spoiled
from heedful.errors import UserError
from heedful.evaluation import significance
from heedful.evaluation.metrics import Counts, count_bleu, count_chrf
from heedful.evaluation.significance import compare, intervals

LINES = references(120)
GOOD, WORSE = spoiled(LINES, 0.2), spoiled(LINES, 0.35, seed=3)
SIMILAR = spoiled(LINES, 0.35, seed=4)  # as bad as WORSE but for chance


def count(output: list[str]) -> list[Counts]:
    return [count_bleu(output, [LINES]), count_chrf(output, [LINES])]


def test_intervals_equal_sacrebleus() -> None:
    for metric, interval in zip([BLEU(force=True), CHRF()], intervals(count(GOOD)), strict=True):
        expected = metric.corpus_score(GOOD, [LINES], n_bootstrap=1000)
        # sacreBLEU sums in float32.
        assert interval.mean == pytest.approx(expected._mean, abs=1e-4)
        assert interval.margin == pytest.approx(expected._ci, abs=1e-4)
        assert interval.low < expected.score < interval.high


def test_p_values_equal_sacrebleus() -> None:
    systems = [("other", WORSE), ("ours", GOOD)]
    metrics = {"BLEU": BLEU(force=True, references=[LINES]), "CHRF": CHRF(references=[LINES])}
    for ours in (GOOD, SIMILAR):
        systems[1] = ("ours", ours)
        _, expected = PairedTest(systems, metrics, None, test_type="ar", n_samples=2000)()
        comparisons = compare(count(ours), count(WORSE), n_trials=2000)
        for comparison, (name, results) in zip(comparisons, list(expected.items())[1:], strict=True):
            assert comparison.p_value == pytest.approx(results[1].p_value, abs=1e-9), name
            assert comparison.difference == pytest.approx(results[1].score - results[0].score)


def test_the_size_of_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = intervals(count(GOOD)), compare(count(SIMILAR), count(WORSE), n_trials=500)
    assert 0.05 < whole[1][0].p_value < 1  # at 0 or 1, wrong draws would not show
    monkeypatch.setattr(significance, "LARGEST_BLOCK", 5000)
    assert (intervals(count(GOOD)), compare(count(SIMILAR), count(WORSE), n_trials=500)) == whole


def test_the_seed_decides_the_resamples() -> None:
    first, again, other = (intervals(count(GOOD), seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_planted_difference_is_found_and_its_sign_is_right() -> None:
    for comparison in compare(count(GOOD), count(WORSE)):
        assert comparison.p_value < 0.001
        assert 0 < comparison.interval.low < comparison.difference < comparison.interval.high
    for comparison in compare(count(WORSE), count(GOOD)):
        assert comparison.p_value < 0.001
        assert comparison.interval.high < 0


def test_equal_outputs_do_not_differ() -> None:
    for comparison in compare(count(GOOD), count(list(GOOD))):
        assert (comparison.difference, comparison.p_value) == (0.0, 1.0)
        assert (comparison.interval.low, comparison.interval.high) == (0.0, 0.0)


def test_chance_is_rarely_significant() -> None:
    """For outputs with equal error rates, about 5 % of pairs have p < 0.05."""
    n_different = 0
    for seed in range(40):
        ours, other = (spoiled(LINES, 0.3, seed=2 * seed + k + 100) for k in (0, 1))
        n_different += (
            compare(count(ours)[:1], count(other)[:1], n_resamples=1, n_trials=200, seed=seed)[0].p_value < 0.05
        )
    assert n_different <= 8  # more than 8 of 40 have a probability of 1 in 10,000


def test_metrics_with_other_options_and_zero_draws_are_rejected() -> None:
    lower = [count_bleu(GOOD, [LINES], lowercase=True)]
    with pytest.raises(UserError, match="cannot be compared"):
        compare(count(GOOD)[:1], lower)
    with pytest.raises(UserError, match="n_resamples or n_trials is 0"):
        intervals(count(GOOD), n_resamples=0)


def test_1000_resamples_take_at_most_twice_the_time_of_counting() -> None:
    lines = references(1000)
    start = time.process_time()
    metrics = [count_bleu(spoiled(lines, 0.3), [lines]), count_chrf(spoiled(lines, 0.3), [lines])]
    counting = time.process_time() - start
    start = time.process_time()
    intervals(metrics)
    assert time.process_time() - start < 2 * counting


def test_resamples_are_sums_of_sentences() -> None:
    """The slow way, drawing sentences and scoring them as a corpus, has the same result."""
    random = np.random.default_rng(7)
    drawn = random.choice(len(LINES), size=(20, len(LINES)), replace=True)
    slow = [count_bleu([GOOD[i] for i in row], [[LINES[i] for i in row]]).value for row in drawn]
    fast = intervals([count_bleu(GOOD, [LINES])], n_resamples=20, seed=7)[0]
    assert fast.mean == pytest.approx(np.mean(slow))
    assert (fast.low, fast.high) == pytest.approx((min(slow), max(slow)))
