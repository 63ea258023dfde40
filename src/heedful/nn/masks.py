"""Attention masks: boolean tensors, True = may attend, broadcastable to (B, H, T, S).

A mask sets scores to minus infinity before the softmax. Zero scores would still get weight (exp 0 = 1), and zeros after
the softmax would leave rows that do not sum to 1.
"""

import torch
from torch import Tensor


def padding_mask(real: Tensor) -> Tensor:
    """Hide padding from every query: (B, S), True = a real token -> (B, 1, 1, S)."""
    return real[:, None, None, :]


def causal_mask(n_queries: int, n_keys: int | None = None, *, device: torch.device | None = None) -> Tensor:
    """Hide future tokens: (T, S). The queries are the last T of the S keys, so a cached step needs no special case.

    >>> causal_mask(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    n_keys = n_queries if n_keys is None else n_keys
    query = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    return torch.arange(n_keys, device=device)[None, :] <= query


def document_mask(documents: Tensor) -> Tensor:
    """Hide other documents of a packed row: (B, T), the number of each token's document -> (B, 1, T, T)."""
    return (documents[:, None, :, None] == documents[:, None, None, :]).detach()


def combine(*masks: Tensor | None) -> Tensor | None:
    """Return the intersection of masks; None allows everything."""
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    combined = present[0]
    for mask in present[1:]:
        combined = combined & mask
    return combined


def as_additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a mask to a bias of the scores: 0 for True, minus infinity for False."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)
