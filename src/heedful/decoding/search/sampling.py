"""Greedy search: always the likeliest next token. Fast, and it may miss the likeliest sentence.

Sampling: the next token is drawn, by its probability, from what the filters leave.
"""

import numpy as np
import torch

from heedful.decoding.search.beam_search import likeliest
from heedful.decoding.search.hypotheses import Floats, Ints, LiveHypotheses, NextTokenScores, as_ints
from heedful.decoding.search.logits_processors import sampling_filter
from heedful.decoding.search.settings import Sampling


def greedy_step(board: LiveHypotheses, prediction: NextTokenScores) -> None:
    """One step for all sentences."""
    tokens = likeliest(prediction.logits)
    append_tokens(board, as_ints(tokens), prediction.gain_of_one(tokens))


def append_tokens(board: LiveHypotheses, tokens: Ints, gains: Floats) -> None:
    """Every row goes on with its own token (B, W); a sentence is over when all its rows have ended."""
    scores = board.scores + gains
    ends = (tokens == board.special_ids.eos_id) | (board.lengths + 1 >= board.limits)[:, None]
    ends &= ~board.ended & ~board.over[:, None]
    for place, row in np.argwhere(ends):
        board.finish(place, row, float(scores[place, row]), int(tokens[place, row]))
    board.write(tokens, scores)
    board.ended |= ends
    board.over |= board.ended.all(axis=1)


def sample_step(board: LiveHypotheses, prediction: NextTokenScores) -> None:
    """One step for all rows. A draw depends on the seed, the request, the row and the position, on nothing else:
    the same texts in other batches, or blocks, give the same translations.
    """
    sampling = board.settings.sampling
    assert sampling is not None
    logits = prediction.logits
    likely = sampling_filter(logits, sampling).softmax(dim=1)
    cumulative = (likely.cpu() if likely.device.type == "mps" else likely).double().cumsum(dim=1)  # mps has no float64
    chances = torch.from_numpy(_chances(board, sampling)).to(cumulative.device)
    cumulative /= cumulative[:, -1:].clone()
    tokens = torch.searchsorted(cumulative, chances.view(-1, 1), right=True).clamp(max=logits.size(1) - 1)
    shape = board.tokens.shape
    append_tokens(board, as_ints(tokens).reshape(shape), prediction.gains(tokens.to(logits.device)).reshape(shape))


def _chances(board: LiveHypotheses, sampling: Sampling) -> Floats:
    """A number in [0, 1) for each row, (B, W)."""
    rows = []
    for entry, length in zip(board.entries, board.lengths, strict=True):
        number, piece = entry.request.place or (entry.number, 0)
        rows.append(np.random.default_rng([sampling.seed, number, int(length), piece]).random(board.width))
    return np.array(rows)
