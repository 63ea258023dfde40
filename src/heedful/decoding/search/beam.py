"""Beam search: the W best continuations of W hypotheses, step by step.

CTranslate2's rule, which both engines share: of the 2W best candidates, those among the first W that end are set aside
as finished; the first W that do not end go on (2W candidates always hold so many, since each row can end only once).
A sentence is over when enough have finished; "proven" goes on until no live hypothesis can still win.
"""

from collections.abc import Callable

import numpy as np

from heedful.decoding.search.board import Board, Ints
from heedful.decoding.search.candidates import Candidates, find_candidates
from heedful.decoding.search.prediction import Prediction
from heedful.decoding.search.required import with_required
from heedful.decoding.search.settings import length_norm

Watch = Callable[[Board, Candidates], None]


def extend_beam(board: Board, prediction: Prediction, *, watch: Watch | None = None) -> Ints:
    """One step for all sentences; which row (of all N) each row goes on from."""
    candidates = find_candidates(board, prediction)
    if any(entry.request.required for entry in board.entries):
        candidates = with_required(board, candidates, prediction)
    if watch is not None:
        watch(board, candidates)
    _set_aside(board, candidates)
    parents = _go_on(board, candidates)
    for place in np.flatnonzero(~board.over).tolist():
        board.over[place] = _is_over(board, place)
    return (parents + np.arange(len(board))[:, None] * board.width).ravel()


def _set_aside(board: Board, found: Candidates) -> None:
    """Finish those of the first W candidates that end, or that reach the limit of their length."""
    first = slice(0, board.width)
    last = (board.lengths + 1 >= board.limits)[:, None]
    ends = (found.tokens[:, first] == board.marks.end_id) | last
    ends &= np.isfinite(found.scores[:, first]) & ~board.over[:, None]
    for place, number in np.argwhere(ends):
        parent, token = int(found.parents[place, number]), int(found.tokens[place, number])
        board.finish(place, parent, float(found.scores[place, number]), token)
    board.over |= last[:, 0]


def _go_on(board: Board, found: Candidates) -> Ints:
    """The first W candidates that do not end become the rows; their parents (B, W)."""
    ending = found.tokens == board.marks.end_id
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


def _is_over(board: Board, place: int) -> bool:
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


def _seems_worse(board: Board, place: int, live: float) -> bool:
    """Whether as many have finished as the beam is wide, all better than the best live one as it stands: its score is
    compared at its length of now, though a longer text may well be ranked higher.
    """
    ranks = sorted((hypothesis.rank for hypothesis in board.finished[place]), reverse=True)[: board.width]
    now = live / length_norm(float(board.lengths[place]), board.settings)
    return len(ranks) == board.width and now <= ranks[-1]


def _cannot_win(board: Board, place: int, live: float) -> bool:
    """Whether no live hypothesis can still enter the n best: a score never rises, and its divisor is at most (or, for a
    negative penalty, at least) that of the longest text allowed.
    """
    settings = board.settings
    ends = (float(board.lengths[place]) + 1, float(board.limits[place]))
    bound = max(live / length_norm(length, settings) for length in ends)
    return board.best(place)[settings.n_best - 1].rank >= bound
