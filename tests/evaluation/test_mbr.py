"""MBR decoding chooses the hypothesis that is most similar to all hypotheses, by sacreBLEU's sentence scores."""

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from evaluation_outputs import references, spoiled
from heedful.errors import UserError
from heedful.evaluation import expected_utility, mbr_decode
from heedful.evaluation.mbr import METRICS

LINES = references(60)
OUTPUTS = [spoiled(LINES, share, seed=seed) for seed, share in enumerate((0.4, 0.1, 0.2, 0.1, 0.3))]


def best_by_hand(hypotheses, score):
    """Return the first hypothesis with the highest sum of scores, each pair scored by itself."""
    return max(hypotheses, key=lambda text: sum(score(text, [other]).score for other in hypotheses))


@pytest.mark.parametrize("metric", METRICS)
def test_the_choice_has_the_highest_mean_of_sacrebleus_sentence_scores(metric):
    scorer = BLEU(tokenize="13a", effective_order=True) if metric == "bleu" else CHRF()
    expected = [best_by_hand(hypotheses, scorer.sentence_score) for hypotheses in zip(*OUTPUTS, strict=True)]
    assert mbr_decode(OUTPUTS, metric=metric) == expected
    assert any(text != first for text, first in zip(expected, OUTPUTS[0], strict=True))


@pytest.mark.parametrize("metric", METRICS)
def test_expected_utility_is_a_mean_over_all_outputs_with_each_hypothesis_once(metric):
    scorer = BLEU(tokenize="13a", effective_order=True) if metric == "bleu" else CHRF()
    utilities = expected_utility(OUTPUTS, metric=metric)
    for hypotheses, by_text in zip(zip(*OUTPUTS, strict=True), utilities, strict=True):
        assert list(by_text) == list(dict.fromkeys(hypotheses))
        for text, mean in by_text.items():
            scores = [scorer.sentence_score(text, [other]).score for other in hypotheses]
            assert mean == pytest.approx(sum(scores) / len(scores), abs=1e-9)


def test_a_majority_outvotes_the_first():
    assert mbr_decode([["a cat sits"], ["a dog runs"], ["a dog runs"]]) == ["a dog runs"]


@pytest.mark.parametrize("metric", METRICS)
def test_n_votes_count_like_n_copies_of_an_output(metric):
    votes = (2, 0, 1, 3, 1)
    copies = [output for output, n_times in zip(OUTPUTS, votes, strict=True) for _ in range(n_times)]
    expected = expected_utility(copies, metric=metric)
    actual = expected_utility(OUTPUTS, metric=metric, votes=votes)
    for by_copies, by_votes in zip(expected, actual, strict=True):
        assert {text: by_votes[text] for text in by_copies} == pytest.approx(by_copies)
    assert expected_utility(OUTPUTS, votes=(0.2,) * 5) == [pytest.approx(row) for row in expected_utility(OUTPUTS)]
    assert mbr_decode(OUTPUTS, metric=metric, votes=votes) != mbr_decode(OUTPUTS, metric=metric)


def test_a_hypothesis_without_a_vote_may_be_chosen():
    between = "a dog runs here"
    outputs = [[between], ["a dog runs"], ["a cat runs here"]]
    assert mbr_decode(outputs, votes=(0, 1, 1)) == [between]


def test_of_equal_hypotheses_the_first_is_chosen():
    assert mbr_decode([["ab", "x"], ["cd", "x"]]) == ["ab", "x"]


def test_one_output_is_returned_as_it_is_with_its_empty_lines():
    lines = ["Ein Hund.", "", "Zwei Katzen."]
    assert mbr_decode([lines]) == lines
    assert mbr_decode([lines, lines], metric="bleu") == lines
    assert mbr_decode([[], []]) == []


def test_bleu_splits_words_with_the_given_tokenizer():
    """13a separates a full stop from its word; "none" splits at spaces only."""
    outputs = [["a man runs."], ["a man runs ."], ["the dog runs ."]]
    assert mbr_decode(outputs, metric="bleu") == ["a man runs."]
    assert mbr_decode(outputs, metric="bleu", tokenize="none") == ["a man runs ."]


def test_invalid_arguments_are_rejected():
    with pytest.raises(UserError, match="output 1 has 2 lines, output 2 has 1"):
        mbr_decode([["a", "b"], ["a"]])
    with pytest.raises(UserError, match="outputs is empty"):
        mbr_decode([])
    with pytest.raises(UserError, match="metric"):
        mbr_decode([["a"]], metric="ter")


@pytest.mark.parametrize("votes", [(1,), (1, -1), (0, 0), (1, float("nan")), (1, float("inf"))])
def test_invalid_votes_are_rejected(votes):
    with pytest.raises(UserError, match="votes"):
        mbr_decode([["a"], ["b"]], votes=votes)
