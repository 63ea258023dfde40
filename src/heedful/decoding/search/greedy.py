"""Greedy search: always the likeliest next token. Fast, and it may miss the likeliest sentence."""

import numpy as np

from heedful.decoding.search.board import Board, Floats, Ints
from heedful.decoding.search.candidates import likeliest
from heedful.decoding.search.prediction import Prediction, as_ints


def take_likeliest(board: Board, prediction: Prediction) -> None:
    """One step for all sentences."""
    tokens = likeliest(prediction.logits)
    follow(board, as_ints(tokens), prediction.gain_of_one(tokens))


def follow(board: Board, tokens: Ints, gains: Floats) -> None:
    """Every row goes on with its own token (B, W); a sentence is over when all its rows have ended."""
    scores = board.scores + gains
    ends = (tokens == board.marks.end_id) | (board.lengths + 1 >= board.limits)[:, None]
    ends &= ~board.ended & ~board.over[:, None]
    for place, row in np.argwhere(ends):
        board.finish(place, row, float(scores[place, row]), int(tokens[place, row]))
    board.write(tokens, scores)
    board.ended |= ends
    board.over |= board.ended.all(axis=1)
