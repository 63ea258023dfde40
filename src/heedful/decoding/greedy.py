"""Greedy search: always the likeliest next token. Fast, and it may miss the likeliest sentence."""

import numpy as np
from torch import Tensor

from heedful.decoding.board import Board, Floats, Ints
from heedful.text import SPECIAL


def take_likeliest(board: Board, logits: Tensor, normaliser: Tensor) -> None:
    """One step for all sentences: logits (B, V) after the filters, the log-sum-exp of each row before them (B,)."""
    values, tokens = logits.max(dim=1)
    gains = (values - normaliser).double().cpu().numpy()
    follow(board, tokens.cpu().numpy()[:, None], gains[:, None])


def follow(board: Board, tokens: Ints, gains: Floats) -> None:
    """Every row goes on with its own token (B, W); a sentence is over when all its rows have ended."""
    scores = board.scores + gains
    ends = (tokens == SPECIAL.end) | (board.lengths + 1 >= board.limits)[:, None]
    ends &= ~board.ended & ~board.over[:, None]
    for place, row in np.argwhere(ends):
        board.finish(place, row, float(scores[place, row]), int(tokens[place, row]))
    board.write(tokens, scores)
    board.ended |= ends
    board.over |= board.ended.all(axis=1)
