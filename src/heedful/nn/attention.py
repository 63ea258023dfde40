"""Attention: softmax(q k^T / sqrt(K)) v, and multi-head attention.

`attend` is the formula and `attend_fused` the fast kernel; a test compares them. `MultiHeadAttention(..., attend=…)`
takes any function with their signature (`Attend`): sparse patterns, additive attention, or a function that records or
changes the weights. So no `forward` needs a flag for any of these.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import Linear, scaled_dot_product_attention
from .kv_cache import KeyValueStore
from .masks import as_additive, causal_mask, combine
from .positions import Rotary


class Attend(Protocol):
    """The signature of attention: q (B, H, T, K); k, v (B, H', S, K), where H' divides H -> (B, H, T, K).

    Mask and bias are broadcastable to (B, H, T, S). `scale` is the factor of the scores, 1 / sqrt(K) by default;
    `dropout` is the dropout of the weights.
    """

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor: ...


def attention_weights(
    q: Tensor, k: Tensor, mask: Tensor | None = None, *, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Return softmax(q k^T / sqrt(K)), (B, H, T, S): how much each query attends to each key. Each row sums to 1."""
    scale = q.size(-1) ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    return masked_softmax(scores, mask)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Take the softmax over the keys that the mask allows. A query without any allowed key gets zeros, never NaN."""
    if mask is None:
        return scores.softmax(dim=-1)
    # A row that is all minus infinity would give 0/0, forward and backward: leave it unmasked, then set it to zero.
    has_key = mask.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(~mask & has_key, -torch.inf).softmax(dim=-1)
    return weights * has_key


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Compute attention by its formula, equation 1 of "Attention is all you need". See `Attend` for the arguments."""
    k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
    weights = attention_weights(q, k, mask, scale=scale, bias=bias)
    return F.dropout(weights, dropout) @ v  # (B, H, T, K)


def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Compute attention with PyTorch's kernel, which never writes the weights to memory. Equal to `attend`."""
    k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
    if bias is not None:
        mask = bias if mask is None else bias + as_additive(mask, bias.dtype)
    return scaled_dot_product_attention(q, k, v, mask, scale=scale, dropout=dropout)


def attend_causal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Compute causal attention: `attend_fused` with its own causal mask. The queries are the last T of the S keys.

    Without another mask or a bias, the kernel skips the hidden pairs instead of computing and masking them.
    """
    n_queries, n_keys = q.size(2), k.size(2)
    if n_queries == n_keys and mask is None and bias is None:
        k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
        return scaled_dot_product_attention(q, k, v, None, scale=scale, dropout=dropout, is_causal=True)
    if n_queries > 1:  # a single new token may attend to the whole cache
        mask = combine(mask, causal_mask(n_queries, n_keys, device=q.device))
    return attend_fused(q, k, v, mask, scale=scale, bias=bias, dropout=dropout)


def share_heads(x: Tensor, n_heads: int) -> Tensor:
    """Repeat key/value heads that several query heads share: (B, H', S, K) -> (B, H, S, K)."""
    groups = n_heads // x.size(1)
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


class AdditiveAttend(nn.Module):
    """Additive attention (Bahdanau et al. 2015): the score of a pair is v . tanh(q + k).

    The multi-head layer projects q and k. Time grows as for the dot product, but each pair needs K tanh, and memory for
    K numbers.
    """

    def __init__(self, *, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(n_heads, d_head))
        nn.init.normal_(self.direction, std=d_head**-0.5)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
        pairs = torch.tanh(q[:, :, :, None, :] + k[:, :, None, :, :])  # (B, H, T, S, K)
        scores = torch.einsum("bhtsk,hk->bhts", pairs, self.direction) * (1.0 if scale is None else scale)
        if bias is not None:
            scores = scores + bias
        return F.dropout(masked_softmax(scores, mask), dropout) @ v


class MultiHeadAttention(nn.Module):
    """H attentions in K dimensions each, concatenated and projected by W_O (section 3.2.2).

    `d_head` need not be d_model / n_heads, since `to_out` restores the width. With `n_kv_heads` below `n_heads`,
    several query heads share one key/value head. `out_bias` is the bias of W_O, if it differs from `bias`.

    >>> import torch
    >>> attention = MultiHeadAttention(d_model=32, n_heads=4)
    >>> attention(torch.randn(2, 5, 32), torch.randn(2, 7, 32)).shape  # 5 queries attend to a memory of 7
    torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        dropout: float = 0.0,
        scale: float | None = None,
        attend: Attend = attend_fused,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.d_head = d_model // n_heads if d_head is None else d_head
        if n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} must divide n_heads={n_heads}")
        if d_head is None and d_model % n_heads:
            raise ValueError(f"n_heads={n_heads} must divide d_model={d_model}, or d_head must be given")
        self.to_q = Linear(d_model, n_heads * self.d_head, bias=bias)
        self.to_k = Linear(d_model, self.n_kv_heads * self.d_head, bias=bias)
        self.to_v = Linear(d_model, self.n_kv_heads * self.d_head, bias=bias)
        self.to_out = Linear(n_heads * self.d_head, d_model, bias=bias if out_bias is None else out_bias)
        self.dropout = dropout
        self.scale = scale
        self.attend = attend
        self.rotary = rotary

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KeyValueStore | None = None,
    ) -> Tensor:
        """Compute self-attention, or with a memory cross-attention: (B, T, D) -> (B, T, D).

        `cache` keeps keys and values between decoding steps; those of a memory are computed once. A memory may have
        fewer rows than x, if each of its rows belongs to several hypotheses: these become more queries of one row.
        """
        shape = x.shape
        if memory is not None and memory.size(0) != x.size(0):
            x = x.reshape(memory.size(0), -1, x.size(2))
        q = self._split(self.to_q(x), self.n_heads)  # (B, H, T, K)
        if cache is not None and memory is not None and cache.length > 0:
            k, v = cache.read()
        else:
            k, v = self._keys_values(x if memory is None else memory, positions)
            if cache is not None:
                k, v = cache.append(k, v)
        if self.rotary is not None and positions is not None:
            q = self.rotary(q, positions)
        mixed = self.attend(
            q, k, v, mask, scale=self.scale, bias=bias, dropout=self.dropout if self.training else 0.0
        )  # (B, H, T, K)
        merged: Tensor = self.to_out(mixed.transpose(1, 2).flatten(2))
        return merged.view(shape)  # (B, T, D)

    def _keys_values(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        k = self._split(self.to_k(x), self.n_kv_heads)  # (B, H', S, K)
        v = self._split(self.to_v(x), self.n_kv_heads)
        if self.rotary is not None and positions is not None:
            k = self.rotary(k, positions)
        return k, v

    def _split(self, x: Tensor, n_heads: int) -> Tensor:
        return x.view(x.size(0), x.size(1), n_heads, self.d_head).transpose(1, 2)  # (B, T, H x K) -> (B, H, T, K)
