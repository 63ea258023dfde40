"""`evaluate_texts`: scores, intervals and a comparison in one call."""

import pytest
from sacrebleu.metrics import BLEU, CHRF

from evaluation_outputs import references, spoiled
from heedful.evaluation import evaluate_texts
from heedful.evaluation.evaluate import SentenceScores

LINES = references(50)
OUTPUT = spoiled(LINES, 0.2)


def test_scores_and_signatures_are_those_of_sacrebleu_with_an_interval() -> None:
    metrics = [BLEU(force=True), CHRF(), BLEU(lowercase=True, force=True), CHRF(lowercase=True)]
    result = evaluate_texts(OUTPUT, [LINES], lowercase=True)
    assert len(result.scores) == 4
    for score, metric in zip(result.scores, metrics, strict=True):
        expected = metric.corpus_score(OUTPUT, [LINES], n_bootstrap=1000)
        assert (score.name, score.signature) == (expected.name, str(metric.get_signature()))
        assert score.value == pytest.approx(expected.score)
        assert score.interval is not None
        assert score.interval.margin == pytest.approx(expected._ci, abs=1e-4)


def test_without_a_second_output_nothing_is_compared() -> None:
    result = evaluate_texts(OUTPUT, [LINES])
    assert (result.other_scores, result.other_sentences, result.comparisons) == ([], None, [])
    assert len(result.scores) == 2


def test_the_second_output_has_the_scores_of_a_call_of_its_own() -> None:
    other = spoiled(LINES, 0.5, seed=8)
    result, alone = evaluate_texts(OUTPUT, [LINES], against=other), evaluate_texts(other, [LINES])
    assert (result.other_scores, result.other_sentences) == (alone.scores, alone.sentences)
    for comparison, ours, theirs in zip(result.comparisons, result.scores, result.other_scores, strict=True):
        assert comparison.difference == pytest.approx(ours.value - theirs.value)


def test_the_worst_sentences_come_first() -> None:
    scores = SentenceScores(bleu=[5.0, 0.0, 9.0, 0.0], chrf=[30.0, 20.0, 20.0, 20.0])
    assert scores.worst(3) == [1, 3, 2]
    assert scores.worst(0) == []
    assert scores.worst(9) == [1, 3, 2, 0]
