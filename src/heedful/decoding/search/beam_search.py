"""Beam search: in each step, the W best continuations of W hypotheses.

It follows CTranslate2, so that both engines find the same: of the 2W best candidates, those among the first W that end
are finished, and the first W that do not end stay in the beam. 2W candidates always contain W that do not end, since
each row can end only once. A search is over as `SearchSettings.stop` says.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.search.callback import BeamCandidate, Fate
from heedful.decoding.search.constrained_beam_search import with_required
from heedful.decoding.search.hypotheses import Candidates, Ints, LiveHypotheses, NextTokenScores, as_ints
from heedful.decoding.search.settings import length_norm

CHUNK = 32  # logits whose maximum is computed together


def extend_beam(
    live: LiveHypotheses,
    scores: NextTokenScores,
    *,
    on_candidates: Callable[[int, list[BeamCandidate]], None] | None = None,
) -> Ints:
    """Take one step for all slots; return for each of the N rows the row that it continues."""
    candidates = find_candidates(live, scores)
    if any(active.request.required for active in live.active):
        candidates = with_required(live, candidates, scores)
    if on_candidates is not None:
        for slot in np.flatnonzero(~live.done).tolist():
            on_candidates(live.active[slot].index, _describe(live, candidates, slot))
    _finish_ended(live, candidates)
    parents = _keep_best(live, candidates)
    for slot in np.flatnonzero(~live.done).tolist():
        live.done[slot] = _is_done(live, slot)
    return (parents + np.arange(len(live))[:, None] * live.width).ravel()


def find_candidates(live: LiveHypotheses, scores: NextTokenScores) -> Candidates:
    """Return the 2W best of the W x V continuations of each slot. They are among the 2W best of each row."""
    width = live.width
    n_best = min(2 * width, scores.logits.size(1))
    values, tokens = topk_by_chunks(scores.logits, n_best)  # (N, n_best)
    shape = (len(live), width, n_best)
    sums = live.scores[:, :, None] + scores.log_probs(tokens).reshape(shape)
    ordered_by = sums
    if live.settings.repetition_penalty != 1.0:
        ordered_by = live.scores[:, :, None] + (values - scores.log_sum[:, None]).cpu().numpy().reshape(shape)
    if live.settings.diversity:
        ordered_by = ordered_by - live.settings.diversity * np.arange(n_best)
    flat = ordered_by.reshape(len(live), -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * width]
    slots = np.arange(len(live))[:, None]
    return Candidates(
        scores=sums.reshape(len(live), -1)[slots, order],
        parents=order // n_best,
        tokens=as_ints(tokens).reshape(len(live), -1)[slots, order],
    )


def argmax_by_chunks(logits: Tensor) -> Tensor:
    """Return the first largest of each row, (N, V) -> (N, 1), as `argmax` does.

    On CPUs `argmax` looks at the numbers one by one; maxima of chunks are vectorised.
    """
    n, size = logits.shape
    n_chunks = size // CHUNK
    if n < 4 or n_chunks < 2 * CHUNK or logits.device.type != "cpu":  # for few numbers argmax is faster
        return logits.argmax(dim=1, keepdim=True)
    body = logits[:, : n_chunks * CHUNK].view(n, n_chunks, CHUNK)
    chunk = body.amax(dim=2).argmax(dim=1)  # (n,)
    inside = body[torch.arange(n), chunk]  # (n, CHUNK)
    best = chunk[:, None] * CHUNK + inside.argmax(dim=1, keepdim=True)
    rest = logits[:, n_chunks * CHUNK :]
    if rest.size(1):
        value, index = rest.max(dim=1, keepdim=True)
        best = torch.where(value > inside.amax(dim=1, keepdim=True), n_chunks * CHUNK + index, best)
    return best


def topk_by_chunks(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row and their indices, as `topk` does.

    The k largest are in the k chunks with the largest maxima; searching only these is faster on CPUs.
    """
    n, size = logits.shape
    n_chunks = size // CHUNK
    if n_chunks <= 2 * k or logits.device.type != "cpu":
        values, ids = logits.topk(k, dim=1)
        return values, ids
    body = logits[:, : n_chunks * CHUNK].view(n, n_chunks, CHUNK)
    chunks = body.amax(dim=2).topk(k, dim=1).indices  # (n, k)
    ids = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK)).flatten(1)  # (n, k x CHUNK)
    rest = torch.arange(n_chunks * CHUNK, size).expand(n, -1)
    ids = torch.cat([ids, rest], dim=1)
    values, columns = logits.gather(1, ids).topk(k, dim=1)
    return values, ids.gather(1, columns)


def _describe(live: LiveHypotheses, candidates: Candidates, slot: int) -> list[BeamCandidate]:
    """Return the candidates of one slot for a callback, each with its fate in this step."""
    described: list[BeamCandidate] = []
    length = int(live.lengths[slot]) + 1
    is_last, n_kept = length >= live.limits[slot], 0
    columns = (candidates.scores[slot], candidates.tokens[slot], candidates.parents[slot])
    for i, (score, token, row) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if not np.isfinite(score):
            continue
        ends = token == live.special_ids.eos_id
        fate: Fate = "pruned"
        if (ends or is_last) and i < live.width:
            fate = "finished"
        elif not ends and not is_last and n_kept < live.width:
            fate, n_kept = "kept", n_kept + 1
        normalized = live.normalized_score(slot, row, score, length)
        described.append(BeamCandidate(row, token, score, normalized, fate))
    return described


def _finish_ended(live: LiveHypotheses, candidates: Candidates) -> None:
    """Finish those of the first W candidates that end, or reach the length limit."""
    first = slice(0, live.width)
    last = (live.lengths + 1 >= live.limits)[:, None]
    ends = (candidates.tokens[:, first] == live.special_ids.eos_id) | last
    ends &= np.isfinite(candidates.scores[:, first]) & ~live.done[:, None]
    for slot, i in np.argwhere(ends):
        parent, token = int(candidates.parents[slot, i]), int(candidates.tokens[slot, i])
        live.finish(slot, parent, float(candidates.scores[slot, i]), token)
    live.done |= last[:, 0]


def _keep_best(live: LiveHypotheses, candidates: Candidates) -> Ints:
    """Make the first W candidates that do not end the rows of each slot; return their parents, (B, W)."""
    ending = candidates.tokens == live.special_ids.eos_id
    order = np.argsort(ending, axis=1, kind="stable")[:, : live.width]
    missing = live.width - order.shape[1]
    if missing > 0:  # the vocabulary is smaller than the beam
        order = np.pad(order, ((0, 0), (0, missing)), mode="edge")
    slots = np.arange(len(live))[:, None]
    scores = np.where(ending, -np.inf, candidates.scores)[slots, order]
    if missing > 0:
        scores[:, -missing:] = -np.inf
    parents = candidates.parents[slots, order]
    live.append(candidates.tokens[slots, order], scores, parents)
    return parents


def _is_done(live: LiveHypotheses, slot: int) -> bool:
    """Whether the search of a slot is over, by `settings.stop`."""
    settings, finished = live.settings, live.finished[slot]
    best_live = live.scores[slot].max()
    if not np.isfinite(best_live):
        return True
    if settings.stop == "proven":
        return len(finished) >= settings.n_best and _cannot_improve(live, slot, float(best_live))
    if settings.stop == "estimated":
        return _seems_worse(live, slot, float(best_live))
    if len(finished) >= max(settings.n_best, round(settings.beam * settings.patience)):
        return True
    # Without penalties a score can only fall: then no live hypothesis can beat n better finished ones.
    has_no_penalty = settings.length_penalty == 0 and settings.coverage_penalty == 0 and settings.patience == 1
    if not has_no_penalty or len(finished) < settings.n_best:
        return False
    scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)
    return scores[settings.n_best - 1] >= float(best_live)


def _seems_worse(live: LiveHypotheses, slot: int, best_live: float) -> bool:
    """Whether W hypotheses have finished that all are better than the best live one at its present length.

    It is an estimate: a longer text may get a better normalized score.
    """
    best = sorted((hypothesis.normalized_score for hypothesis in live.finished[slot]), reverse=True)[: live.width]
    now = best_live / length_norm(float(live.lengths[slot]), live.settings)
    return len(best) == live.width and now <= best[-1]


def _cannot_improve(live: LiveHypotheses, slot: int, best_live: float) -> bool:
    """Whether no live hypothesis can still get among the n best.

    A score never rises, and what it is divided by is largest (with a negative penalty, smallest) at the length limit.
    """
    settings = live.settings
    lengths = (float(live.lengths[slot]) + 1, float(live.limits[slot]))
    bound = max(best_live / length_norm(length, settings) for length in lengths)
    return live.best(slot)[settings.n_best - 1].normalized_score >= bound
