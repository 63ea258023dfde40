"""Words that must occur: beam search with places reserved for hypotheses that have come further.

After Post & Vilar 2018. The tokens of the required runs that a hypothesis has already written are its progress. Each
step also considers the next required token of every hypothesis, however unlikely; the places of the beam are dealt out
over the degrees of progress in turn; only what has everything may end.
"""

from collections.abc import Sequence

import numpy as np

from heedful.decoding.search.hypotheses import Candidates, LiveHypotheses, NextTokenScores

Runs = Sequence[Sequence[int]]
Candidate = tuple[float, int, int]  # score, row, token


def with_required(board: LiveHypotheses, found: Candidates, prediction: NextTokenScores) -> Candidates:
    """The candidates again, those of sentences with required words chosen and ordered so that the words get in."""
    for place, entry in enumerate(board.entries):
        if entry.request.required and not board.over[place]:
            chosen = _choose(board, place, found, prediction)
            for number in range(found.scores.shape[1]):
                score, row, token = chosen[number] if number < len(chosen) else (-np.inf, 0, board.special_ids.pad_id)
                found.scores[place, number], found.parents[place, number] = score, row
                found.tokens[place, number] = token
    return found


def progress(ids: Sequence[int], runs: Runs) -> int:
    """How many tokens of the runs are there: all of a run that occurs, else as much of its start as stands last."""
    total = 0
    for run in runs:
        n = len(run)
        if any(list(ids[i : i + n]) == list(run) for i in range(len(ids) - n + 1)):
            total += n
        else:
            total += max((k for k in range(min(n, len(ids)) + 1) if k and list(ids[-k:]) == list(run[:k])), default=0)
    return total


def next_tokens(ids: Sequence[int], runs: Runs) -> set[int]:
    """The tokens that would bring a hypothesis further."""
    now = progress(ids, runs)
    return {token for run in runs for token in run if progress([*ids, token], runs) > now}


def _choose(board: LiveHypotheses, place: int, found: Candidates, prediction: NextTokenScores) -> list[Candidate]:
    """First those that end, then the rows to go on with."""
    runs = board.entries[place].request.required
    total = sum(map(len, runs))
    left = int(board.limits[place] - board.lengths[place])
    written = [board.row(place, row) for row in range(board.width)]
    ending: list[Candidate] = []
    banks: dict[int, list[Candidate]] = {}
    for score, row, token in sorted(_all(board, place, found, prediction, written), reverse=True):
        have = (
            progress(written[row], runs)
            if token == board.special_ids.eos_id
            else progress([*written[row], token], runs)
        )
        if token == board.special_ids.eos_id:
            if have == total and len(ending) < board.width:
                ending.append((score, row, token))
        elif total - have <= left - 1:  # what is missing must still fit in
            banks.setdefault(have, []).append((score, row, token))
    going: list[Candidate] = []
    while len(going) < board.width and any(banks.values()):
        for have in sorted(banks, reverse=True):
            if banks[have] and len(going) < board.width:
                going.append(banks[have].pop(0))
    # An end that is worse than every complete hypothesis that goes on would only fill the list of the finished.
    complete = [c for c in going if progress([*written[c[1]], c[2]], runs) == total]
    worst = min((c[0] for c in complete), default=-np.inf)
    return [c for c in ending if c[0] >= worst] + going


def _all(
    board: LiveHypotheses, place: int, found: Candidates, prediction: NextTokenScores, written: list[list[int]]
) -> set[Candidate]:
    """The likeliest candidates, every end, and every required next token."""
    listed = {
        (float(score), int(row), int(token))
        for score, row, token in zip(found.scores[place], found.parents[place], found.tokens[place], strict=True)
        if np.isfinite(score)
    }
    known = {(row, token) for _, row, token in listed}
    for row in range(board.width):
        before = board.scores[place, row]
        if np.isfinite(before):
            for token in {board.special_ids.eos_id} | next_tokens(written[row], board.entries[place].request.required):
                score = float(before) + prediction.gain(place * board.width + row, token)
                if (row, token) not in known and np.isfinite(score):
                    listed.add((score, row, token))
    return listed
