"""Minimum Bayes risk (MBR) decoding: choose, for each sentence, the hypothesis that is most similar to all hypotheses.

Kumar and Byrne (2004). The hypotheses come from several models, or from several searches of one model. The choice
needs no reference and no model, and the systems may have different vocabularies.
"""

import math
from collections.abc import Sequence
from typing import Literal

from heedful.errors import UserError, invalid_choice
from heedful.evaluation.metrics import FloatArray, Tokenize, count_bleu, count_chrf

Metric = Literal["bleu", "chrf"]
METRICS: tuple[Metric, ...] = ("bleu", "chrf")


def mbr_decode(
    outputs: Sequence[Sequence[str]],
    *,
    metric: Metric = "chrf",
    tokenize: Tokenize = "13a",
    votes: Sequence[float] | None = None,
) -> list[str]:
    """Choose the hypothesis with the highest expected utility for each sentence; of equal ones, the first.

    `outputs` holds one list of hypotheses for each system; the options are those of `expected_utility`.

    >>> mbr_decode([["a cat sits"], ["a dog runs"], ["a dog ran"]])
    ['a dog runs']
    """
    utilities = expected_utility(outputs, metric=metric, tokenize=tokenize, votes=votes)
    return [max(sentence, key=sentence.__getitem__) for sentence in utilities]


def expected_utility(
    outputs: Sequence[Sequence[str]],
    *,
    metric: Metric = "chrf",
    tokenize: Tokenize = "13a",
    votes: Sequence[float] | None = None,
) -> list[dict[str, float]]:
    """Return for each sentence its distinct hypotheses, in the order of the systems, with their mean similarity to all.

    The similarity (0 to 100) is sentence BLEU, with words split by `tokenize`, or chrF2; the other hypothesis is the
    reference. `votes` is the weight of each system in the mean, by default 1. Models that were trained from each other
    make the same mistakes; let them share one vote.

    >>> [utilities] = expected_utility([["a dog"], ["a dog"], ["the cat"]], metric="bleu")
    >>> {text: round(utility, 1) for text, utility in utilities.items()}
    {'a dog': 66.7, 'the cat': 33.3}
    """
    if metric not in METRICS:
        raise invalid_choice("metric", metric, METRICS)
    _require_aligned(outputs)
    votes = [1.0] * len(outputs) if votes is None else votes
    _require_votes(votes, len(outputs))
    sentences = [_votes_by_text(hypotheses, votes) for hypotheses in zip(*outputs, strict=True)]
    # Equal hypotheses are compared once and counted with the sum of their votes.
    pairs = [(text, other) for sentence in sentences for text in sentence for other in sentence]
    scores = iter(_similarities(pairs, metric, tokenize)) if pairs else iter(())
    return [
        {text: float(sum(next(scores) * vote for vote in sentence.values())) / sum(votes) for text in sentence}
        for sentence in sentences
    ]


def _votes_by_text(hypotheses: Sequence[str], votes: Sequence[float]) -> dict[str, float]:
    """Sum the votes of each distinct hypothesis, in the order of first occurrence."""
    sums = dict.fromkeys(hypotheses, 0.0)
    for text, vote in zip(hypotheses, votes, strict=True):
        sums[text] += vote
    return sums


def _similarities(pairs: Sequence[tuple[str, str]], metric: Metric, tokenize: Tokenize) -> FloatArray:
    """Score the first text of each pair, with the second as its reference."""
    hypotheses, references = [text for text, _ in pairs], [[other for _, other in pairs]]
    if metric == "chrf":
        return count_chrf(hypotheses, references).sentence_scores
    return count_bleu(hypotheses, references, tokenize=tokenize).sentence_scores


def _require_aligned(outputs: Sequence[Sequence[str]]) -> None:
    if not outputs:
        raise UserError("outputs is empty: pass the hypotheses of at least one system")
    for number, hypotheses in enumerate(outputs, start=1):
        if len(hypotheses) != len(outputs[0]):
            raise UserError(
                f"output 1 has {len(outputs[0]):,} lines, output {number} has {len(hypotheses):,}: "
                "line n of each output must translate the same sentence"
            )


def _require_votes(votes: Sequence[float], n_outputs: int) -> None:
    are_valid = all(math.isfinite(vote) and vote >= 0 for vote in votes) and sum(votes) > 0
    if len(votes) != n_outputs or not are_valid:
        raise UserError(
            f"votes={list(votes)}: expected a number for each of the {n_outputs} outputs, none below 0 and not all 0"
        )
