"""The loop around every search: requests fill the slots of a batch, are extended step by step, and leave it when done.

Others take their slots while the rest continues, so that one long text delays no other.
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
from heedful.decoding.search.logits_processors import make_processors
from heedful.decoding.search.request import Hypothesis, Request, check_room, nothing_found
from heedful.decoding.search.sampling import greedy_step, sample_step
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.search.step import S, Step

# One step for all rows; returns the row that each row continues, or None if each continues itself.
SearchStrategy = Callable[[LiveHypotheses, NextTokenScores], Ints | None]


def search(
    step: Step[S],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    n_rows: int = 64,
    lanes: int = 1,
    callback: SearchCallback | None = None,
) -> list[list[Hypothesis]]:
    """Return the n best hypotheses of each request, in the order of the requests.

    `n_rows` is about the number of hypotheses in one batch. `lanes` is the number of batches that are computed at a
    time, each in a thread of its own on one core: the matrix products of a step are too small to be divided well, so
    two lanes on two cores are faster than one lane on both. With a callback there is one lane, in the caller's thread.
    """
    width = settings.beam if settings.sampling is None else settings.n_best
    order = sorted(range(len(requests)), key=lambda index: -len(requests[index]))
    active = [
        ActiveRequest(index, requests[index], length_limit_of(step, requests[index], settings)) for index in order
    ]
    for each in active:
        check_room(each.request, each.limit)
    results: list[list[Hypothesis]] = [[] for _ in requests]
    n_slots = max(1, n_rows // width)
    stop = threading.Event()
    lanes = 1 if callback is not None else lanes

    def run_lane(lane: int) -> None:
        # Each lane has its own queue: which requests share a batch must not depend on the speed of the threads.
        waiting = deque(active[lane::lanes])
        with torch.inference_mode():
            while (first := _take(waiting, n_slots)) and not stop.is_set():
                for _ in run_batch(step, first, waiting, settings, results, callback):
                    if stop.is_set():
                        return

    if lanes == 1:
        run_lane(0)
    else:
        with ThreadPoolExecutor(lanes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                for finished in as_completed([pool.submit(run_lane, lane) for lane in range(lanes)]):
                    finished.result()
            except BaseException:  # the first error of any lane, or a signal that reached this thread while it waited
                stop.set()
                raise
    for each in active:
        if not (callback and callback.should_stop and callback.should_stop(each.index)):
            require_something(results[each.index], each)
    return results


def require_something(hypotheses: Sequence[Hypothesis], active: ActiveRequest) -> None:
    """Refuse a search without a result, or whose only results are ruled out."""
    if not hypotheses or hypotheses[0].score == -np.inf:
        raise nothing_found(active.request, active.limit)


def strategy_for(settings: SearchSettings, callback: SearchCallback | None = None) -> SearchStrategy:
    """Return the function that takes one step of the search."""
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
    """Search until the batch is empty, and yield after each step; free slots are refilled from `waiting`."""
    width = settings.beam if settings.sampling is None else settings.n_best
    live = LiveHypotheses(first, width, settings, step.special_ids)
    processors = make_processors(settings, [each.request for each in [*first, *waiting]], step.special_ids)
    take_step = strategy_for(settings, callback)
    needs_attention = settings.coverage_penalty > 0
    state = step.begin([each.request.source for each in first], width, attention=needs_attention)
    while len(live):
        tokens = torch.from_numpy(live.tokens.ravel())
        logits = step(tokens.to(step.device), state)
        raw_logits = _force_bos(logits if logits.dtype == torch.float64 else logits.float(), live)
        logits = raw_logits.clone() if processors else raw_logits
        for process in processors:
            process(logits, raw_logits, live)
        if state.attention is not None:
            live.add_attention(state.attention.cpu().double().numpy().reshape(len(live), width, -1))
        parents = take_step(live, NextTokenScores(logits, raw_logits))
        if parents is not None and (parents != np.arange(len(parents))).any():
            state.reorder(torch.from_numpy(parents).to(step.device))
        if callback is not None:
            _call_back(callback, live)
        _replace_done(step, state, live, waiting, results)
        yield


def _call_back(callback: SearchCallback, live: LiveHypotheses) -> None:
    """Stop the requests that should stop, and pass on the best live hypothesis of each other request."""
    for slot in np.flatnonzero(~live.done).tolist():
        index = live.active[slot].index
        if callback.should_stop is not None and callback.should_stop(index):
            live.done[slot], live.finished[slot] = True, []
        elif callback.on_step is not None:
            ids = live.ids_of(slot, int(live.scores[slot].argmax()))
            callback.on_step(index, ids[live.special_ids.n_forced :])


def _replace_done(
    step: Step[S], state: S, live: LiveHypotheses, waiting: deque[ActiveRequest], results: list[list[Hypothesis]]
) -> None:
    """Store the results of slots that are done. If these are a quarter of the batch, refill or drop them."""
    free = np.flatnonzero(live.done)
    if len(free) < max(1, len(live) // 4):
        return
    for slot in free.tolist():
        results[live.active[slot].index] = live.best(slot)
    if step.refills and (active := _take(waiting, len(free))):
        refilled, free = free[: len(active)], free[len(active) :]
        live.refill(refilled, active)
        step.replace(state, torch.from_numpy(refilled).to(step.device), [each.request.source for each in active])
    if len(free):
        kept = np.setdiff1d(np.arange(len(live)), free)
        live.keep(kept)
        state.keep(torch.from_numpy(kept).to(step.device))


def _take(waiting: deque[ActiveRequest], n: int) -> list[ActiveRequest]:
    """Take the next n requests, or as many as there are."""
    return [waiting.popleft() for _ in range(min(n, len(waiting)))]


def _force_bos(logits: Tensor, live: LiveHypotheses) -> Tensor:
    """If the model's targets begin with a forced token, make it the only first token, with log-probability 0."""
    if live.special_ids.n_forced == 0 or (live.lengths > 0).all():
        return logits
    begins = torch.from_numpy(live.lengths == 0).repeat_interleave(live.width).to(logits.device)
    forced = torch.full_like(logits, -torch.inf)
    forced[:, live.special_ids.bos_id] = 0.0
    return torch.where(begins[:, None], forced, logits)


def length_limit_of(step: Step[S], request: Request, settings: SearchSettings) -> int:
    """Return the most tokens to generate for a request, forced ones included."""
    limit = settings.limit(len(request)) + step.special_ids.n_forced
    return limit if step.max_len is None else min(limit, step.max_len)
