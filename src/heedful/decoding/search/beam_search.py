"""The best continuations of a step: few numbers out of rows x vocabulary.

The diary of a beam search: which hypotheses lived, which died and why. The beam's tree is drawn from it.

Beam search: the W best continuations of W hypotheses, step by step.

CTranslate2's rule, which both engines share: of the 2W best candidates, those among the first W that end are set aside
as finished; the first W that do not end go on (2W candidates always hold so many, since each row can end only once).
A sentence is over when enough have finished; "proven" goes on until no live hypothesis can still win.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.search.callback import BeamCandidate, Fate
from heedful.decoding.search.constrained_beam_search import with_required
from heedful.decoding.search.hypotheses import Candidates, Ints, LiveHypotheses, NextTokenScores, as_ints
from heedful.decoding.search.settings import length_norm

CHUNK = 32


def find_candidates(board: LiveHypotheses, prediction: NextTokenScores) -> Candidates:
    """The 2W best of the W x V continuations of each sentence. They are among the 2W best of each row."""
    width = board.width
    n_best = min(2 * width, prediction.logits.size(1))
    values, tokens = top(prediction.logits, n_best)  # (N, n_best)
    shape = (len(board), width, n_best)
    scores = board.scores[:, :, None] + prediction.gains(tokens).reshape(shape)
    chosen_by = scores
    if board.settings.repetition_penalty != 1.0:
        chosen_by = board.scores[:, :, None] + (values - prediction.normaliser[:, None]).cpu().numpy().reshape(shape)
    if board.settings.diversity:
        chosen_by = chosen_by - board.settings.diversity * np.arange(n_best)
    flat = chosen_by.reshape(len(board), -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * width]
    sentences = np.arange(len(board))[:, None]
    return Candidates(
        scores=scores.reshape(len(board), -1)[sentences, order],
        parents=order // n_best,
        tokens=as_ints(tokens).reshape(len(board), -1)[sentences, order],
    )


def likeliest(logits: Tensor) -> Tensor:
    """The first largest of each row, (N, V) -> (N, 1), as `argmax` gives it, which looks for its place one by one; the
    maxima of chunks are found many at a time.
    """
    n, size = logits.shape
    n_chunks = size // CHUNK
    if n < 4 or n_chunks < 2 * CHUNK or logits.device.type != "cpu":  # few numbers are searched faster than divided
        return logits.argmax(dim=1, keepdim=True)
    body = logits[:, : n_chunks * CHUNK].view(n, n_chunks, CHUNK)
    chunk = body.amax(dim=2).argmax(dim=1)  # (n,)
    inside = body[torch.arange(n), chunk]  # (n, CHUNK)
    found = chunk[:, None] * CHUNK + inside.argmax(dim=1, keepdim=True)
    rest = logits[:, n_chunks * CHUNK :]
    if rest.size(1):
        value, place = rest.max(dim=1, keepdim=True)
        found = torch.where(value > inside.amax(dim=1, keepdim=True), n_chunks * CHUNK + place, found)
    return found


def top(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, as `topk` gives them, found through the maxima of chunks: the k largest lie in the k
    chunks with the largest maxima, and looking for those reads far less.
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
    values, places = logits.gather(1, ids).topk(k, dim=1)
    return values, ids.gather(1, places)


def extend_beam(
    board: LiveHypotheses,
    prediction: NextTokenScores,
    *,
    on_candidates: Callable[[int, list[BeamCandidate]], None] | None = None,
) -> Ints:
    """One step for all sentences; which row (of all N) each row goes on from."""
    candidates = find_candidates(board, prediction)
    if any(entry.request.required for entry in board.entries):
        candidates = with_required(board, candidates, prediction)
    if on_candidates is not None:
        for place in np.flatnonzero(~board.over).tolist():
            on_candidates(board.entries[place].number, _described(board, candidates, place))
    _set_aside(board, candidates)
    parents = _go_on(board, candidates)
    for place in np.flatnonzero(~board.over).tolist():
        board.over[place] = _is_over(board, place)
    return (parents + np.arange(len(board))[:, None] * board.width).ravel()


def _described(board: LiveHypotheses, candidates: Candidates, place: int) -> list[BeamCandidate]:
    """The possible candidates of one sentence for a callback, each with what this step makes of it."""
    described: list[BeamCandidate] = []
    step = int(board.lengths[place]) + 1
    is_last, n_kept = step >= board.limits[place], 0
    columns = (candidates.scores[place], candidates.tokens[place], candidates.parents[place])
    for number, (score, token, row) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if not np.isfinite(score):
            continue
        fate: Fate = "pruned"
        if (token == board.special_ids.eos_id or is_last) and number < board.width:
            fate = "finished"
        elif token != board.special_ids.eos_id and not is_last and n_kept < board.width:
            fate, n_kept = "kept", n_kept + 1
        described.append(BeamCandidate(row, token, score, board.normalized_score(place, row, score, step), fate))
    return described


def _set_aside(board: LiveHypotheses, found: Candidates) -> None:
    """Finish those of the first W candidates that end, or that reach the limit of their length."""
    first = slice(0, board.width)
    last = (board.lengths + 1 >= board.limits)[:, None]
    ends = (found.tokens[:, first] == board.special_ids.eos_id) | last
    ends &= np.isfinite(found.scores[:, first]) & ~board.over[:, None]
    for place, number in np.argwhere(ends):
        parent, token = int(found.parents[place, number]), int(found.tokens[place, number])
        board.finish(place, parent, float(found.scores[place, number]), token)
    board.over |= last[:, 0]


def _go_on(board: LiveHypotheses, found: Candidates) -> Ints:
    """The first W candidates that do not end become the rows; their parents (B, W)."""
    ending = found.tokens == board.special_ids.eos_id
    order = np.argsort(ending, axis=1, kind="stable")[:, : board.width]
    missing = board.width - order.shape[1]
    if missing > 0:  # a vocabulary smaller than the beam
        order = np.pad(order, ((0, 0), (0, missing)), mode="edge")
    sentences = np.arange(len(board))[:, None]
    scores = np.where(ending, -np.inf, found.scores)[sentences, order]
    if missing > 0:
        scores[:, -missing:] = -np.inf
    parents = found.parents[sentences, order]
    board.write(found.tokens[sentences, order], scores, parents)
    return parents


def _is_over(board: LiveHypotheses, place: int) -> bool:
    settings, finished = board.settings, board.finished[place]
    live = board.scores[place].max()
    if not np.isfinite(live):
        return True
    if settings.stop == "proven":
        return len(finished) >= settings.n_best and _cannot_win(board, place, float(live))
    if settings.stop == "estimated":
        return _seems_worse(board, place, float(live))
    if len(finished) >= max(settings.n_best, round(settings.beam * settings.patience)):
        return True
    # Without penalties a score can only fall: the n best that have finished cannot be beaten by what lives.
    bare = settings.length_penalty == 0 and settings.coverage_penalty == 0 and settings.patience == 1
    if not bare or len(finished) < settings.n_best:
        return False
    return sorted((hypothesis.score for hypothesis in finished), reverse=True)[settings.n_best - 1] >= float(live)


def _seems_worse(board: LiveHypotheses, place: int, live: float) -> bool:
    """Whether as many have finished as the beam is wide, all better than the best live one as it stands: its score is
    compared at its length of now, though a longer text may well be ranked higher.
    """
    ranks = sorted((hypothesis.normalized_score for hypothesis in board.finished[place]), reverse=True)[: board.width]
    now = live / length_norm(float(board.lengths[place]), board.settings)
    return len(ranks) == board.width and now <= ranks[-1]


def _cannot_win(board: LiveHypotheses, place: int, live: float) -> bool:
    """Whether no live hypothesis can still enter the n best: a score never rises, and its divisor is at most (or, for a
    negative penalty, at least) that of the longest text allowed.
    """
    settings = board.settings
    ends = (float(board.lengths[place]) + 1, float(board.limits[place]))
    bound = max(live / length_norm(length, settings) for length in ends)
    return board.best(place)[settings.n_best - 1].normalized_score >= bound
