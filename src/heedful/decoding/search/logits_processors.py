"""What must not, or must, be written next: logits in, logits with some at minus infinity out."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heedful.decoding.search.hypotheses import LiveHypotheses
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.text.special_ids import SpecialIds

Filter = Callable[[Tensor, Tensor, LiveHypotheses], None]  # logits (N, V) to change, as the model said them, the board


def filters_of(settings: SearchSettings, requests: Sequence[Request], special_ids: SpecialIds) -> list[Filter]:
    """The filters that a search needs, in the order in which they apply."""
    wanted: list[tuple[bool, Filter]] = [
        (bool(special_ids.extra_eos_ids), join_ends),
        (settings.repetition_penalty != 1.0, dampen_repetition),
        (settings.no_repeat_ngram > 0, forbid_ngrams),
        (bool(settings.forbidden or special_ids.forbidden_ids), forbid_tokens),
        (any(request.forbidden for request in requests), forbid_runs),
        (settings.min_len > 0, forbid_early_end),
        (any(request.prefix for request in requests), force_prefix),
    ]
    return [apply for needed, apply in wanted if needed]


def join_ends(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    """A search knows one end: the likeliest of several stands for it, and the others for nothing. They change places in
    what the model said as well, so that the end counts what it counted there.
    """
    end, others = board.special_ids.eos_id, list(board.special_ids.extra_eos_ids)
    ends = torch.tensor([end, *others], device=said.device)
    likeliest = ends[said[:, ends].argmax(dim=1)][:, None]  # (N, 1)
    value = said.gather(1, likeliest)
    said.scatter_(1, likeliest, said[:, [end]])
    said[:, [end]] = value
    logits[:, [end]] = value
    logits[:, others] = -torch.inf


def dampen_repetition(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    """Tokens already written become less likely (Keskar et al. 2019)."""
    for number, ids in _histories(board):
        seen = torch.tensor(sorted(set(ids)), dtype=torch.int64, device=logits.device)
        values = logits[number, seen]
        penalty = board.settings.repetition_penalty
        logits[number, seen] = torch.where(values > 0, values / penalty, values * penalty)


def forbid_ngrams(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    """No n tokens twice in the same order."""
    n = board.settings.no_repeat_ngram
    for number, ids in _histories(board):
        if len(ids) >= n:
            tail = ids[len(ids) - n + 1 :]
            followers = [ids[i + n - 1] for i in range(len(ids) - n + 1) if ids[i : i + n - 1] == tail]
            logits[number, followers] = -torch.inf


def forbid_tokens(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    logits[:, [*board.settings.forbidden, *board.special_ids.forbidden_ids]] = -torch.inf


def forbid_runs(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    """The last token of a forbidden run, where all before it are written."""
    for place, entry in enumerate(board.entries):
        for row in range(board.width) if entry.request.forbidden and not board.over[place] else ():
            ids = board.row(place, row)
            last = [run[-1] for run in entry.request.forbidden if ids[len(ids) - len(run) + 1 :] == list(run[:-1])]
            logits[place * board.width + row, last] = -torch.inf


def forbid_early_end(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    early = torch.from_numpy(board.lengths < board.settings.min_len + board.special_ids.n_forced).repeat_interleave(
        board.width
    )
    if board.special_ids.eos_id < logits.size(1):  # a model may have an end outside of its vocabulary: it never ends
        logits[early.to(logits.device), board.special_ids.eos_id] = -torch.inf


def force_prefix(logits: Tensor, said: Tensor, board: LiveHypotheses) -> None:
    """Where a request prescribes the next token, no other is possible, whatever else is forbidden."""
    for place, entry in enumerate(board.entries):
        prefix, length = entry.request.prefix, int(board.lengths[place]) - board.special_ids.n_forced
        if 0 <= length < len(prefix):
            rows = slice(place * board.width, (place + 1) * board.width)
            logits[rows] = -torch.inf
            logits[rows, prefix[length]] = said[rows, prefix[length]]


def sampling_filter(logits: Tensor, sampling: Sampling) -> Tensor:
    """Temperature, and only those tokens that all of top-k, top-p and min-p leave; at least the likeliest stays."""
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.size(1):
        smallest = logits.topk(sampling.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if sampling.min_p > 0.0:
        probabilities = logits.softmax(dim=1)
        logits = logits.masked_fill(
            probabilities < sampling.min_p * probabilities.amax(dim=1, keepdim=True), -torch.inf
        )
    if sampling.top_p < 1.0:
        ordered, order = logits.softmax(dim=1).sort(dim=1, descending=True)
        before = ordered.cumsum(dim=1) - ordered  # the probability of all likelier ones
        dropped = before >= max(sampling.top_p, 1e-9)
        dropped[:, 0] = False
        logits = logits.masked_fill(dropped.scatter(1, order, dropped), -torch.inf)
    return logits


def _histories(board: LiveHypotheses) -> list[tuple[int, list[int]]]:
    """(row of the logits, what stands there: what it has written and any prompt), for rows that still count."""
    return [
        (
            place * board.width + row,
            [*(entry.request.source if entry.request.continues else ()), *board.row(place, row)],
        )
        for place, entry in enumerate(board.entries)
        if not board.over[place]
        for row in range(board.width)
    ]
