"""One step of greedy search, which takes the most probable token, and of sampling, which draws one."""

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.search.beam_search import argmax_by_chunks
from heedful.decoding.search.hypotheses import Floats, Ints, LiveHypotheses, NextTokenScores, as_ints
from heedful.decoding.search.settings import Sampling


def greedy_step(live: LiveHypotheses, scores: NextTokenScores) -> None:
    """Append the most probable token to each row."""
    tokens = argmax_by_chunks(scores.logits)
    append_tokens(live, as_ints(tokens), scores.log_probs_of_one(tokens))


def sample_step(live: LiveHypotheses, scores: NextTokenScores) -> None:
    """Append a sampled token to each row.

    The random numbers depend on the seed, the request, the row and the position only, so that a text gets the same
    samples in any batch.
    """
    sampling = live.settings.sampling
    assert sampling is not None
    logits = scores.logits
    probabilities = sampling_filter(logits, sampling).softmax(dim=1)
    on_device = probabilities.cpu() if probabilities.device.type == "mps" else probabilities  # mps has no float64
    cumulative = on_device.double().cumsum(dim=1)
    random = torch.from_numpy(_random_numbers(live, sampling)).to(cumulative.device)
    cumulative /= cumulative[:, -1:].clone()
    tokens = torch.searchsorted(cumulative, random.view(-1, 1), right=True).clamp(max=logits.size(1) - 1)
    shape = live.tokens.shape
    append_tokens(live, as_ints(tokens).reshape(shape), scores.log_probs(tokens.to(logits.device)).reshape(shape))


def sampling_filter(logits: Tensor, sampling: Sampling) -> Tensor:
    """Divide the logits (N, V) by the temperature, and rule out what top-k, top-p or min-p leave out.

    The most probable token always stays.
    """
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
        before = ordered.cumsum(dim=1) - ordered  # the sum of all higher probabilities
        dropped = before >= max(sampling.top_p, 1e-9)
        dropped[:, 0] = False
        logits = logits.masked_fill(dropped.scatter(1, order, dropped), -torch.inf)
    return logits


def append_tokens(live: LiveHypotheses, tokens: Ints, log_probs: Floats) -> None:
    """Append a token to each row, (B, W) each; a slot is done when all of its rows have ended."""
    scores = live.scores + log_probs
    ends = (tokens == live.special_ids.eos_id) | (live.lengths + 1 >= live.limits)[:, None]
    ends &= ~live.ended & ~live.done[:, None]
    for slot, row in np.argwhere(ends):
        live.finish(slot, row, float(scores[slot, row]), int(tokens[slot, row]))
    live.append(tokens, scores)
    live.ended |= ends
    live.done |= live.ended.all(axis=1)


def _random_numbers(live: LiveHypotheses, sampling: Sampling) -> Floats:
    """Return a number in [0, 1) for each row, (B, W)."""
    rows = []
    for active, length in zip(live.active, live.lengths, strict=True):
        text, segment = active.request.sample_key or (active.index, 0)
        rows.append(np.random.default_rng([sampling.seed, text, int(length), segment]).random(live.width))
    return np.array(rows)
