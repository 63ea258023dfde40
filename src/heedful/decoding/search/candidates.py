"""The best continuations of a step: few numbers out of rows x vocabulary."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.search.board import Board, Floats, Ints
from heedful.decoding.search.prediction import Prediction, as_ints

CHUNK = 32


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each sentence, best first: (B, C) each."""

    scores: Floats  # the sums of log-probabilities
    parents: Ints  # which row of the sentence goes on
    tokens: Ints


def find_candidates(board: Board, prediction: Prediction) -> Candidates:
    """The 2W best of the W x V continuations of each sentence. They are among the 2W best of each row."""
    width = board.width
    n_best = min(2 * width, prediction.logits.size(1))
    values, tokens = top(prediction.logits, n_best)  # (N, n_best)
    shape = (len(board), width, n_best)
    scores = board.scores[:, :, None] + prediction.gains(tokens).reshape(shape)
    chosen_by = scores
    if board.settings.repetition_penalty != 1.0:
        chosen_by = board.scores[:, :, None] + (values - prediction.normaliser[:, None]).cpu().numpy().reshape(shape)
    if board.settings.diversity:
        chosen_by = chosen_by - board.settings.diversity * np.arange(n_best)
    flat = chosen_by.reshape(len(board), -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * width]
    sentences = np.arange(len(board))[:, None]
    return Candidates(
        scores=scores.reshape(len(board), -1)[sentences, order],
        parents=order // n_best,
        tokens=as_ints(tokens).reshape(len(board), -1)[sentences, order],
    )


def likeliest(logits: Tensor) -> Tensor:
    """The first largest of each row, (N, V) -> (N, 1), as `argmax` gives it, which looks for its place one by one; the
    maxima of chunks are found many at a time.
    """
    n, size = logits.shape
    n_chunks = size // CHUNK
    if n < 4 or n_chunks < 2 * CHUNK or logits.device.type != "cpu":  # few numbers are searched faster than divided
        return logits.argmax(dim=1, keepdim=True)
    body = logits[:, : n_chunks * CHUNK].view(n, n_chunks, CHUNK)
    chunk = body.amax(dim=2).argmax(dim=1)  # (n,)
    inside = body[torch.arange(n), chunk]  # (n, CHUNK)
    found = chunk[:, None] * CHUNK + inside.argmax(dim=1, keepdim=True)
    rest = logits[:, n_chunks * CHUNK :]
    if rest.size(1):
        value, place = rest.max(dim=1, keepdim=True)
        found = torch.where(value > inside.amax(dim=1, keepdim=True), n_chunks * CHUNK + place, found)
    return found


def top(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, as `topk` gives them, found through the maxima of chunks: the k largest lie in the k
    chunks with the largest maxima, and looking for those reads far less.
    """
    n, size = logits.shape
    n_chunks = size // CHUNK
    if n_chunks <= 2 * k or logits.device.type != "cpu":
        values, ids = logits.topk(k, dim=1)
        return values, ids
    body = logits[:, : n_chunks * CHUNK].view(n, n_chunks, CHUNK)
    chunks = body.amax(dim=2).topk(k, dim=1).indices  # (n, k)
    ids = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK)).flatten(1)  # (n, k x CHUNK)
    rest = torch.arange(n_chunks * CHUNK, size).expand(n, -1)
    ids = torch.cat([ids, rest], dim=1)
    values, places = logits.gather(1, ids).topk(k, dim=1)
    return values, ids.gather(1, places)
