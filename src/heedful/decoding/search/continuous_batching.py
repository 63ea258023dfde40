"""The loop around every search: sentences stand in a batch, are written step by step, leave it, and others take their
place. One long sentence holds nobody up.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.search.beam_search import extend_beam
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.hypotheses import ActiveRequest, Ints, LiveHypotheses, NextTokenScores
from heedful.decoding.search.logits_processors import filters_of
from heedful.decoding.search.request import Hypothesis, Request, check_room, nothing_found
from heedful.decoding.search.sampling import greedy_step, sample_step
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.search.step import S, Step

SearchStrategy = Callable[
    [LiveHypotheses, NextTokenScores], Ints | None
]  # one step for all rows -> which row each goes on from


def search(
    step: Step[S],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    n_rows: int = 64,
    lanes: int = 1,
    callback: SearchCallback | None = None,
) -> list[list[Hypothesis]]:
    """The n best of each request, in the order of the requests; at most about `n_rows` hypotheses at a time.

    With several lanes so many batches are under way at once, each in a thread of its own on one core. The products of
    a step are too small to be divided well: two lanes on two cores do more than one lane on both.
    """
    width = settings.beam if settings.sampling is None else settings.n_best
    order = sorted(range(len(requests)), key=lambda number: -len(requests[number]))
    entries = [
        ActiveRequest(number, requests[number], length_limit_of(step, requests[number], settings)) for number in order
    ]
    for entry in entries:
        check_room(entry.request, entry.limit)
    results: list[list[Hypothesis]] = [[] for _ in requests]
    n_places = max(1, n_rows // width)
    given_up = threading.Event()
    lanes = 1 if callback is not None else lanes  # a callback is called in one thread only

    def work(lane: int) -> None:
        # Each has a queue of its own: who stands beside whom must not depend on who was faster.
        waiting = deque(entries[lane::lanes])
        with torch.inference_mode():
            while (first := _taken(waiting, n_places)) and not given_up.is_set():
                for _ in run_batch(step, first, waiting, settings, results, callback):
                    if given_up.is_set():
                        return

    if lanes == 1:
        work(0)
    else:
        with ThreadPoolExecutor(lanes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                for done in as_completed([pool.submit(work, lane) for lane in range(lanes)]):
                    done.result()
            except BaseException:  # of whichever lane comes first; also a signal that this thread got while it waited
                given_up.set()
                raise
    for entry in entries:
        if not (callback and callback.should_stop and callback.should_stop(entry.number)):
            require_something(results[entry.number], entry)
    return results


def require_something(found: Sequence[Hypothesis], entry: ActiveRequest) -> None:
    """Refuse a search that came to nothing, or only to what is ruled out."""
    if not found or found[0].score == -np.inf:
        raise nothing_found(entry.request, entry.limit)


def strategy_for(settings: SearchSettings, callback: SearchCallback | None = None) -> SearchStrategy:
    if settings.sampling is not None:
        return sample_step
    if callback is not None and callback.on_candidates is not None:
        return partial(extend_beam, on_candidates=callback.on_candidates)
    return extend_beam if settings.beam > 1 else greedy_step


def run_batch(
    step: Step[S],
    first: list[ActiveRequest],
    waiting: deque[ActiveRequest],
    settings: SearchSettings,
    results: list[list[Hypothesis]],
    callback: SearchCallback | None = None,
) -> Iterator[None]:
    """Search until the batch is empty, a step at a time; with a step that can, refill it from those who wait."""
    width = settings.beam if settings.sampling is None else settings.n_best
    board = LiveHypotheses(first, width, settings, step.special_ids)
    filters = filters_of(settings, [entry.request for entry in [*first, *waiting]], step.special_ids)
    watched = settings.coverage_penalty > 0
    advance = strategy_for(settings, callback)
    state = step.begin([entry.request.source for entry in first], width, attention=watched)
    while len(board):
        tokens = torch.from_numpy(board.tokens.ravel())
        said = step(tokens.to(step.device), state)
        said = _opened(said if said.dtype == torch.float64 else said.float(), board)
        logits = said.clone() if filters else said
        for apply in filters:
            apply(logits, said, board)
        if state.attention is not None:
            board.look(state.attention.cpu().double().numpy().reshape(len(board), width, -1))
        parents = advance(board, NextTokenScores(logits, said))
        if parents is not None and (parents != np.arange(len(parents))).any():
            state.reorder(torch.from_numpy(parents).to(step.device))
        if callback is not None:
            _call_back(callback, board)
        _replace_finished(step, state, board, waiting, results)
        yield


def _call_back(callback: SearchCallback, board: LiveHypotheses) -> None:
    """After a step: end what should stop, and pass on the best hypothesis of every request that is still searched."""
    for place in np.flatnonzero(~board.over).tolist():
        number = board.entries[place].number
        if callback.should_stop is not None and callback.should_stop(number):
            board.over[place], board.finished[place] = True, []
        elif callback.on_step is not None:
            ids = board.row(place, int(board.scores[place].argmax()))
            callback.on_step(number, ids[board.special_ids.n_forced :])


def _replace_finished(
    step: Step[S], state: S, board: LiveHypotheses, waiting: deque[ActiveRequest], results: list[list[Hypothesis]]
) -> None:
    """Give out what is over. Once a quarter of the places is free, others come in, or the batch shrinks."""
    free = np.flatnonzero(board.over)
    if len(free) < max(1, len(board) // 4):
        return
    for place in free.tolist():
        entry = board.entries[place]
        results[entry.number] = board.best(place)
    if step.refills and (entries := _taken(waiting, len(free))):
        taken, free = free[: len(entries)], free[len(entries) :]
        board.put(taken, entries)
        step.replace(state, torch.from_numpy(taken).to(step.device), [entry.request.source for entry in entries])
    if len(free):
        kept = np.setdiff1d(np.arange(len(board)), free)
        board.keep(kept)
        state.keep(torch.from_numpy(kept).to(step.device))


def _taken(waiting: deque[ActiveRequest], n: int) -> list[ActiveRequest]:
    """The next n, or as many as there are."""
    return [waiting.popleft() for _ in range(min(n, len(waiting)))]


def _opened(said: Tensor, board: LiveHypotheses) -> Tensor:
    """Where a model's targets open with a given mark, nothing else can come first, and it costs nothing."""
    if board.special_ids.n_forced == 0 or (board.lengths > 0).all():
        return said
    begins = torch.from_numpy(board.lengths == 0).repeat_interleave(board.width).to(said.device)
    given = torch.full_like(said, -torch.inf)
    given[:, board.special_ids.bos_id] = 0.0
    return torch.where(begins[:, None], given, said)


def length_limit_of(step: Step[S], request: Request, settings: SearchSettings) -> int:
    limit = settings.limit(len(request)) + step.special_ids.n_forced
    return limit if step.max_len is None else min(limit, step.max_len)
