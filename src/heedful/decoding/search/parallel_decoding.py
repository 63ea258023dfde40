"""Parallel decoding: greedy search that guesses several tokens and checks them in one pass of the model.

Jacobi iteration (Santilli et al. 2023): the model predicts all tokens of a block at once, each from the guesses before
it, and these predictions are the next guesses. A prediction whose whole prefix is right is the greedy token, so every
pass settles at least one token, and the result is that of greedy search. A pass over several tokens costs more than a
step: it pays where a step takes the same time for one token as for eight, and where guesses are often right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from heedful.decoding.search.request import Hypothesis, Request, nothing_found
from heedful.decoding.search.settings import SearchSettings, length_norm
from heedful.text.special_ids import SpecialIds

BLOCK = 8  # tokens of one pass


class BlockStep(Protocol):
    """A model that reads one source and then, in each call, several target tokens."""

    @property
    def max_len(self) -> int | None: ...

    @property
    def special_ids(self) -> SpecialIds: ...

    def begin(self, source: Sequence[int]) -> None:
        """Read a source, and forget the one before it."""

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """Feed T further tokens; return the logits of the token after each of them, (T, V)."""

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first `length`."""


@dataclass(frozen=True)
class ParallelResult:
    hypothesis: Hypothesis
    n_passes: int  # calls of the model; greedy search needs one for each token and one for the end of the text


@torch.inference_mode()
def decode_in_parallel(
    step: BlockStep, request: Request, settings: SearchSettings, *, block: int = BLOCK
) -> ParallelResult:
    """Find what greedy search finds for one request, `block` tokens in each pass of the model."""
    special_ids = step.special_ids
    limit = settings.limit(len(request)) + special_ids.n_forced
    limit = min(limit, step.max_len or limit)
    ids = [*([special_ids.bos_id] * special_ids.n_forced), *request.prefix][:limit]
    if special_ids.eos_id in ids:
        ids = ids[: ids.index(special_ids.eos_id) + 1]
    step.begin(request.source)
    unread, guesses = [special_ids.start_id, *ids], [special_ids.eos_id] * (block - 1)
    score, n_passes = 0.0, 0
    while True:
        is_over = len(ids) == limit or ids[-1:] == [special_ids.eos_id]
        if is_over and n_passes > 0:
            break
        guesses = [] if is_over else guesses[: limit - len(ids) - 1]
        log_probs = _log_probs(step([*unread, *guesses]), special_ids)  # (unread + guesses, V)
        n_passes += 1
        if n_passes == 1:
            score += _score(log_probs[special_ids.n_forced :], ids[special_ids.n_forced :])
            if is_over:
                break
        ahead = log_probs[len(unread) - 1 :]
        predicted = _most_probable(ahead, len(ids), settings, special_ids)
        n_right = next((i for i, guess in enumerate(guesses) if guess != predicted[i]), len(guesses))
        settled = predicted[: n_right + 1]  # the prediction after the last right guess is right as well
        if special_ids.eos_id in settled:
            settled = settled[: settled.index(special_ids.eos_id) + 1]
        score += _score(ahead, settled)
        ids += settled
        unread = ids[-1:]
        step.truncate(len(ids))  # forget the wrong guesses
        guesses = [*predicted[n_right + 1 :], *[special_ids.eos_id] * block][: block - 1]
    if math.isinf(score):
        raise nothing_found(request, limit)
    complete = ids[-1:] == [special_ids.eos_id]
    normalized = score / length_norm(len(ids), settings)
    return ParallelResult(
        Hypothesis(ids[special_ids.n_forced : len(ids) - complete], score, normalized, complete), n_passes
    )


def why_not_parallel(request: Request | None, settings: SearchSettings) -> str | None:
    """Why parallel decoding cannot search with these settings, or for this request; None if it can.

    It cannot do what depends on all tokens before, since these are still guesses, and nothing but greedy search.
    """
    refused = {
        f"beam = {settings.beam}": settings.beam > 1,
        "sampling": settings.sampling is not None,
        "repetition_penalty": settings.repetition_penalty != 1.0,
        "no_repeat_ngram": settings.no_repeat_ngram > 0,
        "coverage_penalty": settings.coverage_penalty > 0,
        "attention": settings.attention,
        "shortlist": settings.shortlist,
        "forbidden words of several tokens": request is not None and len(request.forbidden) > 0,
        "required words": request is not None and len(request.required) > 0,
    }
    for name, is_used in refused.items():
        if is_used:
            return f"parallel = true: this is greedy search (beam = 1), and cannot do {name}; leave one of them out"
    return None


def _log_probs(logits: Tensor, special_ids: SpecialIds) -> Tensor:
    """Return log-probabilities, (T, V); `eos_id` has that of the most probable end id, as `join_ends` does it."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_probs = logits.log_softmax(dim=1)
    if special_ids.extra_eos_ids:
        ends = torch.tensor([special_ids.eos_id, *special_ids.extra_eos_ids], device=logits.device)
        best = ends[log_probs[:, ends].argmax(dim=1)][:, None]  # (T, 1)
        value = log_probs.gather(1, best)
        log_probs.scatter_(1, best, log_probs[:, [special_ids.eos_id]])
        log_probs[:, [special_ids.eos_id]] = value
    return log_probs


def _score(log_probs: Tensor, tokens: Sequence[int]) -> float:
    """Sum the log-probabilities of the tokens; row i is that of token i."""
    return float(log_probs[range(len(tokens)), list(tokens)].double().sum()) if tokens else 0.0


def _most_probable(log_probs: Tensor, length: int, settings: SearchSettings, special_ids: SpecialIds) -> list[int]:
    """Return the most probable allowed token of each row; the first row is that of token `length` of the target."""
    log_probs = log_probs.clone()
    banned = [*settings.forbidden, *special_ids.forbidden_ids, *special_ids.extra_eos_ids]
    log_probs[:, banned] = -torch.inf
    n_early = max(0, settings.min_len + special_ids.n_forced - length)
    if special_ids.eos_id < log_probs.size(1):
        log_probs[:n_early, special_ids.eos_id] = -torch.inf
    tokens: list[int] = log_probs.argmax(dim=-1).tolist()
    return tokens
