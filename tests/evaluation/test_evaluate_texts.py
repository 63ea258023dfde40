"""Everything about a set of translations, in one call."""

import pytest
from sacrebleu.metrics import BLEU, CHRF

from evaluation_outputs import references, spoiled
from heedful.evaluation.evaluate import SentenceScores, evaluate_texts
from heedful.evaluation.metrics import notes_on, tokenize_for

LINES = references(50)
OUTPUT = spoiled(LINES, 0.2)


def test_scores_and_signatures_are_those_of_sacrebleu_with_an_interval() -> None:
    metrics = [BLEU(force=True), CHRF(), BLEU(lowercase=True, force=True), CHRF(lowercase=True)]
    found = evaluate_texts(OUTPUT, [LINES], lowercase=True)
    assert len(found.scores) == 4
    for score, metric in zip(found.scores, metrics, strict=True):
        expected = metric.corpus_score(OUTPUT, [LINES], n_bootstrap=1000)
        assert (score.name, score.signature) == (expected.name, str(metric.get_signature()))
        assert score.value == pytest.approx(expected.score)
        assert score.interval is not None
        assert score.interval.margin == pytest.approx(expected._ci, abs=1e-4)


def test_without_another_output_nothing_is_compared() -> None:
    found = evaluate_texts(OUTPUT, [LINES])
    assert (found.other_scores, found.other_sentences, found.comparisons) == ([], None, [])
    assert len(found.scores) == 2


def test_the_other_output_has_the_scores_that_it_has_alone() -> None:
    other = spoiled(LINES, 0.5, seed=8)
    found, alone = evaluate_texts(OUTPUT, [LINES], against=other), evaluate_texts(other, [LINES])
    assert (found.other_scores, found.other_sentences) == (alone.scores, alone.sentences)
    for comparison, ours, theirs in zip(found.comparisons, found.scores, found.other_scores, strict=True):
        assert comparison.difference == pytest.approx(ours.value - theirs.value)


def test_the_worst_come_first() -> None:
    scores = SentenceScores(bleu=[5.0, 0.0, 9.0, 0.0], chrf=[30.0, 20.0, 20.0, 20.0])
    assert scores.worst(3) == [1, 3, 2]
    assert scores.worst(0) == []
    assert scores.worst(9) == [1, 3, 2, 0]


@pytest.mark.parametrize(
    ("line", "tokenize"),
    [
        ("一只狗在街上奔跑。", "zh"),
        ("犬が通りを走っている。", "ja-mecab"),
        ("สุนัขวิ่งอยู่บนถนน", "char"),
    ],
)
def test_text_without_spaces_is_noticed(line: str, tokenize: str) -> None:
    (note,) = notes_on(["x"] * 3, [line, "", line], "13a")
    assert f"--tokenize {tokenize}" in note
    assert list(notes_on(["x"] * 3, [line, "", line], tokenize)) == []


@pytest.mark.parametrize(
    ("line", "tokenize"),
    [
        ("Ein Hund rennt.", "13a"),
        ("一只狗在街上奔跑。", "zh"),
        ("犬が通りを走っている。", "char"),
        ("สุนัขวิ่งอยู่บนถนน", "char"),
        ("…", "13a"),
    ],
)
def test_words_are_found_by_the_script_where_nobody_says_how(line: str, tokenize: str) -> None:
    assert tokenize_for([line, "", line]) == tokenize


def test_tokenised_text_is_noticed() -> None:
    (note,) = notes_on(["A dog ."] * 100, ["A dog ."] * 100, "13a")
    assert "--tokenize none" in note
    assert list(notes_on(["A dog ."] * 100, ["A dog ."] * 100, "none")) == []
    assert list(notes_on(["A dog."] * 100, ["Ein Hund."] * 100, "13a")) == []
