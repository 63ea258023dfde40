"""What the model says at each step: its likeliest tokens, how sure it is, and what it thinks of the token that came."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.text import Tokenizer
from heedful.text.tokenizer import generated_pieces

TOP = 10
TOP_OF_A_LENS = 3


@dataclass(frozen=True)
class Candidate:
    token: str
    id: int
    probability: float
    logit: float


@dataclass(frozen=True)
class OutputStep:
    """Step t: the whole distribution in a few numbers. probability = exp(logit - log_sum)."""

    token: str
    id: int
    probability: float
    rank: int  # 0: it was the likeliest
    logit: float
    log_sum: float
    entropy: float  # bits
    top: tuple[Candidate, ...]


@dataclass(frozen=True)
class Likely:
    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class LensStep:
    """What a layer would say at a step; probability and rank are of the token that came."""

    probability: float
    rank: int
    entropy: float
    top: tuple[Likely, ...]


def output_steps(logits: Tensor, ids: Sequence[int], tokenizer: Tokenizer, *, k: int = TOP) -> tuple[OutputStep, ...]:
    """logits (T, V), the ids that were written or given (T)."""
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
                top=tuple(Candidate(token, id, math.exp(value - log_sum), value) for token, id, value in top),
            )
        )
    return tuple(steps)


def lens_steps(logits: Tensor, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[LensStep, ...]:
    """The same, shorter: one for each layer and step."""
    return tuple(
        LensStep(
            probability=step.probability,
            rank=step.rank,
            entropy=step.entropy,
            top=tuple(Likely(one.token, one.id, one.probability) for one in step.top),
        )
        for step in output_steps(logits, ids, tokenizer, k=TOP_OF_A_LENS)
    )


def _distribution(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log-sum-exp (T,), log-probabilities (T, V), entropy in bits (T,)."""
    log_sums = logits.logsumexp(dim=1)
    log_p = logits - log_sums[:, None]
    entropies = -torch.special.xlogy(log_p.exp(), log_p.exp()).sum(dim=1) / math.log(2)
    return log_sums, log_p, entropies.clamp(min=0.0)
