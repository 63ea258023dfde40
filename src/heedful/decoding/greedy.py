"""Greedy search: always the likeliest next token. Fast, and it may miss the likeliest sentence."""

import torch
from torch import Tensor

from heedful.decoding.step import S, Step


@torch.inference_mode()
def greedy_search(step: Step[S], state: S, *, n_rows: int, start: int, end: int, max_len: Tensor) -> list[list[int]]:
    """The tokens of each row up to its end mark, or up to its own `max_len` (n_rows,). No marks in the result.

    Rows that are done leave the batch once a quarter of it is done, so that a long one does not drag them along.
    """
    written: list[list[int]] = [[] for _ in range(n_rows)]
    rows = torch.arange(n_rows, device=max_len.device)  # which sentence each row of the batch is
    alive = torch.ones_like(rows, dtype=torch.bool)
    tokens = torch.full_like(rows, start)
    for length in range(1, int(max_len.max()) + 1 if n_rows else 0):
        logits, state = step(tokens, state)
        tokens = logits.argmax(dim=-1)
        alive &= tokens != end
        for row, token in zip(rows[alive].tolist(), tokens[alive].tolist(), strict=True):
            written[row].append(token)
        alive &= length < max_len[rows]
        n_alive = int(alive.sum())
        if n_alive == 0:
            break
        if n_alive <= 0.75 * len(rows):
            kept = alive.nonzero().squeeze(1)
            state = state.keep_rows(kept)  # type: ignore[assignment]
            rows, tokens, alive = rows[kept], tokens[kept], alive[kept]
    return written
