"""Constrained beam search: words that must occur in the target (Post and Vilar 2018).

The progress of a hypothesis is the number of required tokens that it has. Each step also considers, for each
hypothesis, the next required tokens, however improbable. The beam is divided evenly over the degrees of progress, and
only hypotheses that have all required words may end.
"""

from collections.abc import Sequence

import numpy as np

from heedful.decoding.search.hypotheses import Candidates, LiveHypotheses, NextTokenScores

Required = Sequence[Sequence[int]]
Candidate = tuple[float, int, int]  # score, row, token


def with_required(live: LiveHypotheses, candidates: Candidates, scores: NextTokenScores) -> Candidates:
    """Choose and order the candidates anew in slots with required words, so that these words get into the target."""
    for slot, active in enumerate(live.active):
        if active.request.required and not live.done[slot]:
            chosen = _choose(live, slot, candidates, scores)
            for i in range(candidates.scores.shape[1]):
                score, row, token = chosen[i] if i < len(chosen) else (-np.inf, 0, live.special_ids.pad_id)
                candidates.scores[slot, i], candidates.parents[slot, i] = score, row
                candidates.tokens[slot, i] = token
    return candidates


def progress(ids: Sequence[int], required: Required) -> int:
    """Count the required tokens in `ids`: all of a sequence that occurs, else those of its start at the end of `ids`.

    >>> progress([5, 8, 4, 7], required=[[8, 4], [7, 9]])
    3
    """
    total = 0
    for sequence in required:
        n = len(sequence)
        if any(list(ids[i : i + n]) == list(sequence) for i in range(len(ids) - n + 1)):
            total += n
        else:
            starts = (k for k in range(min(n, len(ids)) + 1) if k and list(ids[-k:]) == list(sequence[:k]))
            total += max(starts, default=0)
    return total


def next_tokens(ids: Sequence[int], required: Required) -> set[int]:
    """Return the tokens that increase the progress of a hypothesis."""
    now = progress(ids, required)
    return {token for sequence in required for token in sequence if progress([*ids, token], required) > now}


def _choose(live: LiveHypotheses, slot: int, candidates: Candidates, scores: NextTokenScores) -> list[Candidate]:
    """Return the candidates of a slot: first those that end, then those that stay in the beam."""
    required = live.active[slot].request.required
    total = sum(map(len, required))
    left = int(live.limits[slot] - live.lengths[slot])
    prefixes = [live.ids_of(slot, row) for row in range(live.width)]
    ending: list[Candidate] = []
    banks: dict[int, list[Candidate]] = {}
    for score, row, token in sorted(_all_candidates(live, slot, candidates, scores, prefixes), reverse=True):
        if token == live.special_ids.eos_id:
            have = progress(prefixes[row], required)
            if have == total and len(ending) < live.width:
                ending.append((score, row, token))
            continue
        have = progress([*prefixes[row], token], required)
        if total - have <= left - 1:  # the missing tokens must still fit into the limit
            banks.setdefault(have, []).append((score, row, token))
    staying: list[Candidate] = []
    while len(staying) < live.width and any(banks.values()):
        for have in sorted(banks, reverse=True):
            if banks[have] and len(staying) < live.width:
                staying.append(banks[have].pop(0))
    # An end that is worse than every complete hypothesis that stays would only fill the list of the finished.
    complete = [each for each in staying if progress([*prefixes[each[1]], each[2]], required) == total]
    worst = min((each[0] for each in complete), default=-np.inf)
    return [each for each in ending if each[0] >= worst] + staying


def _all_candidates(
    live: LiveHypotheses, slot: int, candidates: Candidates, scores: NextTokenScores, prefixes: list[list[int]]
) -> set[Candidate]:
    """Return the most probable candidates of a slot, and for each row its end and its next required tokens."""
    listed = {
        (float(score), int(row), int(token))
        for score, row, token in zip(
            candidates.scores[slot], candidates.parents[slot], candidates.tokens[slot], strict=True
        )
        if np.isfinite(score)
    }
    known = {(row, token) for _, row, token in listed}
    for row in range(live.width):
        before = live.scores[slot, row]
        if np.isfinite(before):
            required = live.active[slot].request.required
            for token in {live.special_ids.eos_id} | next_tokens(prefixes[row], required):
                score = float(before) + scores.log_prob(slot * live.width + row, token)
                if (row, token) not in known and np.isfinite(score):
                    listed.add((score, row, token))
    return listed
