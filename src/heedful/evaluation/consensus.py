"""One translation out of several: for each sentence the one that the others agree with most.

Minimum Bayes risk (Kumar and Byrne 2004) with the outputs of several models, or several outputs of one, as the voters:
what is likely to be right is like most of what was said. It needs no model, no vocabulary in common and no reference.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from heedful.errors import UserError, one_of
from heedful.evaluation.counts import FloatArray, Tokenize, count_bleu, count_chrf

Likeness = Literal["bleu", "chrf"]
LIKENESSES: tuple[Likeness, ...] = ("bleu", "chrf")


def consensus(
    outputs: Sequence[Sequence[str]], *, likeness: Likeness = "chrf", tokenize: Tokenize = "13a"
) -> list[str]:
    """Of line n of each output, the one that is most like all of them; the earliest of equals.

    `likeness` is sentence BLEU (of words by `tokenize`) or chrF2, with the candidate as the translation and each voter
    as its reference. Who says the same votes for each other.
    """
    if likeness not in LIKENESSES:
        raise one_of("likeness", likeness, LIKENESSES)
    _require_aligned(outputs)
    said = [Counter(line) for line in zip(*outputs, strict=True)]  # in the order in which they first stand
    pairs = [(one, other) for votes in said for one in votes for other in votes]
    likes = iter(_likenesses(pairs, likeness, tokenize)) if pairs else iter(())
    chosen = []
    for votes in said:
        gains = [sum(next(likes) * n_voters for n_voters in votes.values()) for _ in votes]
        chosen.append(list(votes)[int(np.argmax(gains))])
    return chosen


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
