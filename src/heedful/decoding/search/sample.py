"""Sampling: the next token is drawn, by its probability, from what the filters leave."""

import numpy as np
import torch

from heedful.decoding.search.board import Board, Floats
from heedful.decoding.search.filters import sampling_filter
from heedful.decoding.search.greedy import follow
from heedful.decoding.search.prediction import Prediction, as_ints
from heedful.decoding.search.settings import Sampling


def draw(board: Board, prediction: Prediction) -> None:
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
    follow(board, as_ints(tokens).reshape(shape), prediction.gains(tokens.to(logits.device)).reshape(shape))


def _chances(board: Board, sampling: Sampling) -> Floats:
    """A number in [0, 1) for each row, (B, W)."""
    rows = []
    for entry, length in zip(board.entries, board.lengths, strict=True):
        number, piece = entry.request.place or (entry.number, 0)
        rows.append(np.random.default_rng([sampling.seed, number, int(length), piece]).random(board.width))
    return np.array(rows)
