"""Who is chosen is like the others, by sacreBLEU's own sentence scores."""

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from evaluation_outputs import references, spoiled
from heedful.errors import UserError
from heedful.evaluation.mbr import LIKENESSES, agreement, consensus

LINES = references(60)
OUTPUTS = [spoiled(LINES, share, seed=seed) for seed, share in enumerate((0.4, 0.1, 0.2, 0.1, 0.3))]


def by_hand(line, score):
    """The first of those with the highest sum over all outputs, each scored by itself."""
    return max(line, key=lambda one: sum(score(one, [other]).score for other in line))


@pytest.mark.parametrize("likeness", LIKENESSES)
def test_the_choice_is_the_one_with_the_highest_mean_of_sacrebleus_sentence_scores(likeness):
    metric = BLEU(tokenize="13a", effective_order=True) if likeness == "bleu" else CHRF()
    wanted = [by_hand(line, metric.sentence_score) for line in zip(*OUTPUTS, strict=True)]
    assert consensus(OUTPUTS, likeness=likeness) == wanted
    assert any(one != first for one, first in zip(wanted, OUTPUTS[0], strict=True))


@pytest.mark.parametrize("likeness", LIKENESSES)
def test_agreement_is_the_mean_over_all_outputs_and_says_each_once(likeness):
    metric = BLEU(tokenize="13a", effective_order=True) if likeness == "bleu" else CHRF()
    for line, of_line in zip(zip(*OUTPUTS, strict=True), agreement(OUTPUTS, likeness=likeness), strict=True):
        assert list(of_line) == list(dict.fromkeys(line))
        for one, mean in of_line.items():
            by_sacrebleu = sum(metric.sentence_score(one, [other]).score for other in line) / len(line)
            assert mean == pytest.approx(by_sacrebleu, abs=1e-9)


def test_a_majority_outvotes_the_first():
    assert consensus([["a cat sits"], ["a dog runs"], ["a dog runs"]]) == ["a dog runs"]


@pytest.mark.parametrize("likeness", LIKENESSES)
def test_votes_count_as_if_an_output_stood_there_so_many_times(likeness):
    votes = (2, 0, 1, 3, 1)
    repeated = [output for output, n_times in zip(OUTPUTS, votes, strict=True) for _ in range(n_times)]
    wanted, found = agreement(repeated, likeness=likeness), agreement(OUTPUTS, likeness=likeness, votes=votes)
    for expected, of_line in zip(wanted, found, strict=True):
        assert {one: of_line[one] for one in expected} == pytest.approx(expected)
    assert agreement(OUTPUTS, votes=(0.2,) * 5) == [pytest.approx(of_line) for of_line in agreement(OUTPUTS)]
    assert consensus(OUTPUTS, likeness=likeness, votes=votes) != consensus(OUTPUTS, likeness=likeness)


def test_who_has_no_vote_may_still_be_chosen():
    between = "a dog runs here"
    outputs = [[between], ["a dog runs"], ["a cat runs here"]]
    assert consensus(outputs, votes=(0, 1, 1)) == [between]


def test_of_equals_the_earliest_is_taken():
    assert consensus([["ab", "x"], ["cd", "x"]]) == ["ab", "x"]


def test_one_output_is_its_own_consensus_empty_lines_too():
    lines = ["Ein Hund.", "", "Zwei Katzen."]
    assert consensus([lines]) == lines
    assert consensus([lines, lines], likeness="bleu") == lines
    assert consensus([[], []]) == []


def test_words_are_those_of_the_tokenizer():
    """13a cuts a full stop off its word; text that is tokenised already is taken as it is."""
    outputs = [["a man runs."], ["a man runs ."], ["the dog runs ."]]
    assert consensus(outputs, likeness="bleu") == ["a man runs."]
    assert consensus(outputs, likeness="bleu", tokenize="none") == ["a man runs ."]


def test_outputs_that_do_not_belong_together_are_refused():
    with pytest.raises(UserError, match="2 lines, output 2 has 1"):
        consensus([["a", "b"], ["a"]])
    with pytest.raises(UserError, match="no output"):
        consensus([])
    with pytest.raises(UserError, match="likeness"):
        consensus([["a"]], likeness="ter")


@pytest.mark.parametrize("votes", [(1,), (1, -1), (0, 0), (1, float("nan")), (1, float("inf"))])
def test_votes_that_cannot_be_counted_are_refused(votes):
    with pytest.raises(UserError, match="votes"):
        consensus([["a"], ["b"]], votes=votes)
