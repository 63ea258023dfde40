"""Who may look at whom: boolean tensors, True = may attend, broadcastable to (B, H, T, S).

A mask acts before the softmax, as minus infinity: a zero there would still take weight (exp 0 = 1), and a zero put in
after it would leave rows that no longer sum to one.
"""

import torch
from torch import Tensor


def padding_mask(real: Tensor) -> Tensor:
    """Hide padded keys from every query: (B, S), True = a real token -> (B, 1, 1, S)."""
    return real[:, None, None, :]


def causal_mask(n_queries: int, n_keys: int | None = None, *, device: torch.device | None = None) -> Tensor:
    """Hide the future: (T, S). The queries are the last T of the S keys, so a cached step needs no special case."""
    n_keys = n_queries if n_keys is None else n_keys
    query = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    return torch.arange(n_keys, device=device)[None, :] <= query


def document_mask(documents: Tensor) -> Tensor:
    """Keep packed documents apart: (B, T), the number of each token's document -> (B, 1, T, T)."""
    return (documents[:, None, :, None] == documents[:, None, None, :]).detach()


def combine(*masks: Tensor | None) -> Tensor | None:
    """May attend only where every mask allows it; None allows everything."""
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        combined = combined & mask
    return combined


def as_additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The same mask as numbers to add to the scores: 0 where it may attend, minus infinity elsewhere."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)
