"""One translation out of several: for each sentence the one that the others agree with most.

Minimum Bayes risk (Kumar and Byrne 2004) with the outputs of several models, or several outputs of one, as the voters:
what is likely to be right is like most of what was said. It needs no model, no vocabulary in common and no reference.
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
    """Of line n of each output, the one that is most like all of them; the earliest of equals."""
    likes = agreement(outputs, likeness=likeness, tokenize=tokenize, votes=votes)
    return [max(of_line, key=of_line.__getitem__) for of_line in likes]


def agreement(
    outputs: Sequence[Sequence[str]],
    *,
    likeness: Likeness = "chrf",
    tokenize: Tokenize = "13a",
    votes: Sequence[float] | None = None,
) -> list[dict[str, float]]:
    """For each line what is said of it, in the order of the outputs, and how like all of them it is: 0 to 100, a mean.

    `likeness` is sentence BLEU (of words by `tokenize`) or chrF2, with the candidate as the translation and each voter
    as its reference. Who says the same votes for each other. `votes`: how much each output counts, one if not given;
    models that learned from each other err together, and may share one vote.
    """
    if likeness not in LIKENESSES:
        raise invalid_choice("likeness", likeness, LIKENESSES)
    _require_aligned(outputs)
    votes = [1.0] * len(outputs) if votes is None else votes
    _require_votes(votes, len(outputs))
    said = [_votes_for(line, votes) for line in zip(*outputs, strict=True)]
    pairs = [(one, other) for of_line in said for one in of_line for other in of_line]
    likes = iter(_likenesses(pairs, likeness, tokenize)) if pairs else iter(())
    return [
        {one: float(sum(next(likes) * vote for vote in of_line.values())) / sum(votes) for one in of_line}
        for of_line in said
    ]


def _votes_for(line: Sequence[str], votes: Sequence[float]) -> dict[str, float]:
    """What is said, each once, in the order in which it first stands, and how many votes say it."""
    said = dict.fromkeys(line, 0.0)
    for text, vote in zip(line, votes, strict=True):
        said[text] += vote
    return said


def _likenesses(pairs: Sequence[tuple[str, str]], likeness: Likeness, tokenize: Tokenize) -> FloatArray:
    candidates, voters = [one for one, _ in pairs], [[other for _, other in pairs]]
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
