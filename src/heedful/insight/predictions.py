"""The output distribution of each step: likeliest tokens, entropy, and probability of the token that was decoded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.text import Tokenizer
from heedful.text.tokenizer import generated_pieces

TOP = 10  # likeliest tokens of a step that are kept
TOP_OF_A_LENS = 3  # the same for each layer of a lens


@dataclass(frozen=True)
class TopToken:
    """One of the likeliest tokens of a step."""

    token: str
    id: int
    probability: float
    logit: float


@dataclass(frozen=True)
class OutputStep:
    """The distribution of one step in a few numbers: probability = exp(logit - log_sum)."""

    token: str
    id: int
    probability: float
    rank: int  # 0 for the likeliest token
    logit: float
    log_sum: float
    entropy: float  # bits
    top: tuple[TopToken, ...]


@dataclass(frozen=True)
class Likely:
    """One of the likeliest tokens of a lens step."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class LensStep:
    """The prediction of one layer at one step; probability and rank are those of the decoded token."""

    probability: float
    rank: int
    entropy: float
    top: tuple[Likely, ...]


def output_steps(logits: Tensor, ids: Sequence[int], tokenizer: Tokenizer, *, k: int = TOP) -> tuple[OutputStep, ...]:
    """Summarize the distribution of each step from logits (T, V) and the target ids (T)."""
    logits = logits.double()
    log_sums, log_p, entropies = _distribution(logits)
    values, places = logits.topk(min(k, logits.size(1)), dim=1)
    steps = []
    for t, (id, token) in enumerate(zip(ids, generated_pieces(tokenizer, ids), strict=True)):
        logit, log_sum = float(logits[t, id]), float(log_sums[t])
        top = zip(generated_pieces(tokenizer, places[t].tolist()), places[t].tolist(), values[t].tolist(), strict=True)
        steps.append(
            OutputStep(
                token=token,
                id=id,
                probability=math.exp(float(log_p[t, id])),
                rank=int((logits[t] > logit).sum()),
                logit=logit,
                log_sum=log_sum,
                entropy=float(entropies[t]),
                top=tuple(TopToken(token, id, math.exp(value - log_sum), value) for token, id, value in top),
            )
        )
    return tuple(steps)


def lens_steps(logits: Tensor, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[LensStep, ...]:
    """Summarize the distribution of each step for a lens, with fewer candidates than `output_steps`."""
    return tuple(
        LensStep(
            probability=step.probability,
            rank=step.rank,
            entropy=step.entropy,
            top=tuple(Likely(candidate.token, candidate.id, candidate.probability) for candidate in step.top),
        )
        for step in output_steps(logits, ids, tokenizer, k=TOP_OF_A_LENS)
    )


def _distribution(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-sum-exp (T,), log-probabilities (T, V) and entropy in bits (T,)."""
    log_sums = logits.logsumexp(dim=1)
    log_p = logits - log_sums[:, None]
    entropies = -torch.special.xlogy(log_p.exp(), log_p.exp()).sum(dim=1) / math.log(2)
    return log_sums, log_p, entropies.clamp(min=0.0)
