"""Sampling: the next token is drawn, by its probability, from what the filters leave."""

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.board import Board, Floats
from heedful.decoding.filters import sampling_filter
from heedful.decoding.greedy import follow
from heedful.decoding.settings import Sampling


def draw(board: Board, logits: Tensor, normaliser: Tensor) -> None:
    """One step for all rows. A draw depends on the seed, the request, the row and the position, on nothing else:
    the same texts in other batches give the same translations.
    """
    sampling = board.settings.sampling
    assert sampling is not None
    chances = torch.from_numpy(_chances(board, sampling)).to(logits.device)
    cumulative = sampling_filter(logits, sampling).softmax(dim=1).double().cumsum(dim=1)
    cumulative /= cumulative[:, -1:].clone()
    tokens = torch.searchsorted(cumulative, chances.view(-1, 1), right=True).clamp(max=logits.size(1) - 1)
    gains = (logits.gather(1, tokens).squeeze(1) - normaliser).double().cpu().numpy()
    follow(board, tokens.cpu().numpy().reshape(board.tokens.shape), gains.reshape(board.tokens.shape))


def _chances(board: Board, sampling: Sampling) -> Floats:
    """A number in [0, 1) for each row, (B, W)."""
    return np.array(
        [
            np.random.default_rng([sampling.seed, entry.number, int(length)]).random(board.width)
            for entry, length in zip(board.entries, board.lengths, strict=True)
        ]
    )
