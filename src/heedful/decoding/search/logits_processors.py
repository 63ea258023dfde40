"""Logits processors: functions that rule tokens out, by setting their logits to -inf, or change or force them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heedful.decoding.search.hypotheses import LiveHypotheses
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.text.special_ids import SpecialIds

# Changes the logits (N, V) in place; also gets the raw logits of the model (N, V) and the live hypotheses.
LogitsProcessor = Callable[[Tensor, Tensor, LiveHypotheses], None]


def make_processors(
    settings: SearchSettings, requests: Sequence[Request], special_ids: SpecialIds
) -> list[LogitsProcessor]:
    """Return the processors that a search needs, in the order in which they apply."""
    processors: list[tuple[bool, LogitsProcessor]] = [
        (bool(special_ids.extra_eos_ids), join_ends),
        (settings.repetition_penalty != 1.0, penalize_repetition),
        (settings.no_repeat_ngram > 0, ban_repeated_ngrams),
        (bool(settings.forbidden or special_ids.forbidden_ids), ban_tokens),
        (any(request.forbidden for request in requests), ban_sequences),
        (settings.min_len > 0, ban_early_end),
        (any(request.prefix for request in requests), force_prefix),
    ]
    return [processor for is_needed, processor in processors if is_needed]


def join_ends(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Let the most probable of several end ids stand for all of them, since a search knows one end only.

    It swaps logits with `eos_id`, in the raw logits too: the end then counts what the model computed for that end id.
    """
    eos_id, others = live.special_ids.eos_id, list(live.special_ids.extra_eos_ids)
    ends = torch.tensor([eos_id, *others], device=raw_logits.device)
    best = ends[raw_logits[:, ends].argmax(dim=1)][:, None]  # (N, 1)
    value = raw_logits.gather(1, best)
    raw_logits.scatter_(1, best, raw_logits[:, [eos_id]])
    raw_logits[:, [eos_id]] = value
    logits[:, [eos_id]] = value
    logits[:, others] = -torch.inf


def penalize_repetition(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Make tokens that already occur less probable (Keskar et al. 2019)."""
    for row, ids in _prefixes(live):
        tokens = torch.tensor(sorted(set(ids)), dtype=torch.int64, device=logits.device)
        values = logits[row, tokens]
        penalty = live.settings.repetition_penalty
        logits[row, tokens] = torch.where(values > 0, values / penalty, values * penalty)


def ban_repeated_ngrams(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Ban every token that would complete an n-gram that already occurs."""
    n = live.settings.no_repeat_ngram
    for row, ids in _prefixes(live):
        if len(ids) >= n:
            tail = ids[len(ids) - n + 1 :]
            followers = [ids[i + n - 1] for i in range(len(ids) - n + 1) if ids[i : i + n - 1] == tail]
            logits[row, followers] = -torch.inf


def ban_tokens(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Ban the forbidden ids of the settings and of the model."""
    logits[:, [*live.settings.forbidden, *live.special_ids.forbidden_ids]] = -torch.inf


def ban_sequences(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Ban every token that would complete a forbidden sequence of its request."""
    for slot, active in enumerate(live.active):
        banned = active.request.forbidden
        for row in range(live.width) if banned and not live.done[slot] else ():
            ids = live.ids_of(slot, row)
            last = [sequence[-1] for sequence in banned if ids[len(ids) - len(sequence) + 1 :] == list(sequence[:-1])]
            logits[slot * live.width + row, last] = -torch.inf


def ban_early_end(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Ban the end of the text before `min_len` tokens."""
    early = torch.from_numpy(live.lengths < live.settings.min_len + live.special_ids.n_forced).repeat_interleave(
        live.width
    )
    if live.special_ids.eos_id < logits.size(1):  # a model whose end id is outside of its vocabulary never ends
        logits[early.to(logits.device), live.special_ids.eos_id] = -torch.inf


def force_prefix(logits: Tensor, raw_logits: Tensor, live: LiveHypotheses) -> None:
    """Ban every token but the next one of the request's prefix, which is allowed even if it is forbidden."""
    for slot, active in enumerate(live.active):
        prefix, length = active.request.prefix, int(live.lengths[slot]) - live.special_ids.n_forced
        if 0 <= length < len(prefix):
            rows = slice(slot * live.width, (slot + 1) * live.width)
            logits[rows] = -torch.inf
            logits[rows, prefix[length]] = raw_logits[rows, prefix[length]]


def _prefixes(live: LiveHypotheses) -> list[tuple[int, list[int]]]:
    """Return, for each row that is still searched, (row of the logits, its ids after those of the prompt, if any)."""
    return [
        (
            slot * live.width + row,
            [*(active.request.source if active.request.continues else ()), *live.ids_of(slot, row)],
        )
        for slot, active in enumerate(live.active)
        if not live.done[slot]
        for row in range(live.width)
    ]
