"""Consensus: from several translations of a sentence, choose the one that the others agree with most.

This is minimum Bayes risk decoding (Kumar and Byrne 2004) over the outputs of several models, or several outputs of
one. It needs no model, no common vocabulary and no reference.
"""

import math
from collections.abc import Sequence
from typing import Literal

from heedful.errors import UserError, invalid_choice
from heedful.evaluation.metrics import FloatArray, Tokenize, count_bleu, count_chrf

Likeness = Literal["bleu", "chrf"]
LIKENESSES: tuple[Likeness, ...] = ("bleu", "chrf")


def consensus(
    outputs: Sequence[Sequence[str]],
    *,
    likeness: Likeness = "chrf",
    tokenize: Tokenize = "13a",
    votes: Sequence[float] | None = None,
) -> list[str]:
    """Return for each line the output that is most like all outputs; the first of equal ones."""
    likenesses = agreement(outputs, likeness=likeness, tokenize=tokenize, votes=votes)
    return [max(line, key=line.__getitem__) for line in likenesses]


def agreement(
    outputs: Sequence[Sequence[str]],
    *,
    likeness: Likeness = "chrf",
    tokenize: Tokenize = "13a",
    votes: Sequence[float] | None = None,
) -> list[dict[str, float]]:
    """Return for each line its distinct outputs, in order, and how like all outputs each is: the mean, 0 to 100.

    `likeness` is sentence BLEU (of words by `tokenize`) or chrF2, with the candidate as the translation and each output
    as its reference. Equal outputs vote for each other. `votes` are the weights of the outputs, by default 1; models
    that were trained on each other's output make the same mistakes, and may share one vote.
    """
    if likeness not in LIKENESSES:
        raise invalid_choice("likeness", likeness, LIKENESSES)
    _require_aligned(outputs)
    votes = [1.0] * len(outputs) if votes is None else votes
    _require_votes(votes, len(outputs))
    lines = [_votes_for(line, votes) for line in zip(*outputs, strict=True)]
    pairs = [(text, other) for line in lines for text in line for other in line]
    likenesses = iter(_likenesses(pairs, likeness, tokenize)) if pairs else iter(())
    return [
        {text: float(sum(next(likenesses) * vote for vote in line.values())) / sum(votes) for text in line}
        for line in lines
    ]


def _votes_for(line: Sequence[str], votes: Sequence[float]) -> dict[str, float]:
    """Return the distinct texts of a line, in order, and the votes for each."""
    sums = dict.fromkeys(line, 0.0)
    for text, vote in zip(line, votes, strict=True):
        sums[text] += vote
    return sums


def _likenesses(pairs: Sequence[tuple[str, str]], likeness: Likeness, tokenize: Tokenize) -> FloatArray:
    candidates, voters = [text for text, _ in pairs], [[other for _, other in pairs]]
    if likeness == "chrf":
        return count_chrf(candidates, voters).of_sentences
    return count_bleu(candidates, voters, tokenize=tokenize).of_sentences


def _require_aligned(outputs: Sequence[Sequence[str]]) -> None:
    if not outputs:
        raise UserError("there is no output to choose from")
    for number, lines in enumerate(outputs, start=1):
        if len(lines) != len(outputs[0]):
            raise UserError(
                f"the first output has {len(outputs[0]):,} lines, output {number} has {len(lines):,}: "
                "line n of one belongs to line n of the others"
            )


def _require_votes(votes: Sequence[float], n_outputs: int) -> None:
    countable = all(math.isfinite(vote) and vote >= 0 for vote in votes) and sum(votes) > 0
    if len(votes) != n_outputs or not countable:
        raise UserError(
            f"votes={list(votes)}: expected a number for each of the {n_outputs} outputs, none below 0 and not all 0"
        )
