"""Intervals and p-values: sacreBLEU's where it has them, and what they must mean."""

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
ALIKE = spoiled(LINES, 0.35, seed=4)  # as bad as WORSE, but for chance


def counted(output: list[str]) -> list[Counts]:
    return [count_bleu(output, [LINES]), count_chrf(output, [LINES])]


def test_intervals_are_those_of_sacrebleu() -> None:
    for metric, interval in zip([BLEU(force=True), CHRF()], intervals(counted(GOOD)), strict=True):
        expected = metric.corpus_score(GOOD, [LINES], n_bootstrap=1000)
        # It sums in float32.
        assert interval.mean == pytest.approx(expected._mean, abs=1e-4)
        assert interval.margin == pytest.approx(expected._ci, abs=1e-4)
        assert interval.low < expected.score < interval.high


def test_p_values_are_those_of_sacrebleu() -> None:
    systems = [("other", WORSE), ("ours", GOOD)]
    metrics = {"BLEU": BLEU(force=True, references=[LINES]), "CHRF": CHRF(references=[LINES])}
    for ours in (GOOD, ALIKE):
        systems[1] = ("ours", ours)
        _, expected = PairedTest(systems, metrics, None, test_type="ar", n_samples=2000)()
        found = compare(counted(ours), counted(WORSE), n_trials=2000)
        for comparison, (name, results) in zip(found, list(expected.items())[1:], strict=True):
            assert comparison.p_value == pytest.approx(results[1].p_value, abs=1e-9), name
            assert comparison.difference == pytest.approx(results[1].score - results[0].score)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = intervals(counted(GOOD)), compare(counted(ALIKE), counted(WORSE), n_trials=500)
    assert 0.05 < whole[1][0].p_value < 1  # neither end of the scale, where all draws look alike
    monkeypatch.setattr(significance, "LARGEST_BLOCK", 5000)
    assert (intervals(counted(GOOD)), compare(counted(ALIKE), counted(WORSE), n_trials=500)) == whole


def test_the_seed_decides() -> None:
    first, again, other = (intervals(counted(GOOD), seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_planted_difference_is_found_and_its_sign_is_right() -> None:
    for comparison in compare(counted(GOOD), counted(WORSE)):
        assert comparison.p_value < 0.001
        assert 0 < comparison.interval.low < comparison.difference < comparison.interval.high
    for comparison in compare(counted(WORSE), counted(GOOD)):
        assert comparison.p_value < 0.001
        assert comparison.interval.high < 0


def test_equal_outputs_do_not_differ() -> None:
    for comparison in compare(counted(GOOD), counted(list(GOOD))):
        assert (comparison.difference, comparison.p_value) == (0.0, 1.0)
        assert (comparison.interval.low, comparison.interval.high) == (0.0, 0.0)


def test_chance_is_seldom_called_a_difference() -> None:
    """Two outputs with errors of the same kind: at the level of 5 %, about one pair in twenty is called different."""
    found = 0
    for seed in range(40):
        ours, other = (spoiled(LINES, 0.3, seed=2 * seed + k + 100) for k in (0, 1))
        found += (
            compare(counted(ours)[:1], counted(other)[:1], n_resamples=1, n_trials=200, seed=seed)[0].p_value < 0.05
        )
    assert found <= 8  # of 40, by chance, more than 8 come in one of 10,000 cases


def test_what_cannot_be_compared_is_refused() -> None:
    lower = [count_bleu(GOOD, [LINES], lowercase=True)]
    with pytest.raises(UserError, match="cannot be compared"):
        compare(counted(GOOD)[:1], lower)
    with pytest.raises(UserError, match="0 draws"):
        intervals(counted(GOOD), n_resamples=0)


def test_a_thousand_resamples_cost_less_than_the_counting() -> None:
    lines = references(1000)
    start = time.process_time()
    metrics = [count_bleu(spoiled(lines, 0.3), [lines]), count_chrf(spoiled(lines, 0.3), [lines])]
    counting = time.process_time() - start
    start = time.process_time()
    intervals(metrics)
    assert time.process_time() - start < 2 * counting


def test_resamples_are_sums_of_sentences() -> None:
    """By the slow way: draw sentences, score them as a corpus."""
    random = np.random.default_rng(7)
    drawn = random.choice(len(LINES), size=(20, len(LINES)), replace=True)
    slow = [count_bleu([GOOD[i] for i in row], [[LINES[i] for i in row]]).value for row in drawn]
    fast = intervals([count_bleu(GOOD, [LINES])], n_resamples=20, seed=7)[0]
    assert fast.mean == pytest.approx(np.mean(slow))
    assert (fast.low, fast.high) == pytest.approx((min(slow), max(slow)))
