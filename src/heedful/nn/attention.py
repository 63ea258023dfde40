"""Attention: softmax(q k^T / sqrt(K)) v, written twice, and the many heads around it.

`attend` is the formula, `attend_fused` the fast kernel; a test holds them equal. Whatever has their signature can take
their place in `MultiHeadAttention(..., attend=…)`: the restricted patterns do, additive attention does, and so does
anything that wants to look at the weights or change them. No `forward` needs a flag for it.
"""

from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import Linear
from .kv_cache import KeyValueStore
from .masks import as_additive, causal_mask, combine
from .positions import Rotary


class Attend(Protocol):
    """q (B, H, T, K); k, v (B, H', S, K), H' divides H; mask and bias broadcastable to (B, H, T, S) -> (B, H, T, K)."""

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
    """softmax(q k^T / sqrt(K)): who looks at whom. (B, H, T, S); each row sums to one."""
    scale = q.size(-1) ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    return masked_softmax(scores, mask)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the keys that may be attended to; a query that may attend to nothing gets zeros, never NaN."""
    if mask is None:
        return scores.softmax(dim=-1)
    # A row of minus infinities only would be 0/0 in both directions, so it is opened first and emptied afterwards.
    sees_something = mask.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(~mask & sees_something, -torch.inf).softmax(dim=-1)
    return weights * sees_something


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
    """Equation 1 of "Attention is all you need", written to be read."""
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
    """The same numbers from PyTorch's own kernel, which never writes the weights to memory."""
    k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
    if bias is not None:
        mask = bias if mask is None else bias + as_additive(mask, bias.dtype)
    return _kernel(q, k, v, mask, scale=scale, dropout=dropout)


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
    """`attend_fused` that hides the future by itself; the queries are the last T of the S keys.

    Where nothing else is hidden, the kernel leaves out what lies ahead instead of computing and masking it.
    """
    n_queries, n_keys = q.size(2), k.size(2)
    if n_queries == n_keys and mask is None and bias is None:
        k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
        return _kernel(q, k, v, None, scale=scale, dropout=dropout, is_causal=True)
    if n_queries > 1:  # one new token may look at all that is in the cache
        mask = combine(mask, causal_mask(n_queries, n_keys, device=q.device))
    return attend_fused(q, k, v, mask, scale=scale, bias=bias, dropout=dropout)


def _kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    scale: float | None,
    dropout: float,
    is_causal: bool = False,
) -> Tensor:
    """PyTorch's kernel, in float32 where processors train in bfloat16: its backward pass is up to ten times faster."""
    kernel = partial(F.scaled_dot_product_attention, scale=scale, dropout_p=dropout, is_causal=is_causal)
    if q.dtype is not torch.bfloat16 or q.device.type != "cpu" or not q.requires_grad:
        return kernel(q, k, v, attn_mask=mask)
    if mask is not None and mask.is_floating_point():
        mask = mask.float()
    with torch.autocast("cpu", enabled=False):
        return kernel(q.float(), k.float(), v.float(), attn_mask=mask).to(q.dtype)


def share_heads(x: Tensor, n_heads: int) -> Tensor:
    """Let several query heads read one key/value head: (B, H', S, K) -> (B, H, S, K)."""
    groups = n_heads // x.size(1)
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


class AdditiveAttend(nn.Module):
    """Bahdanau's scores, v . tanh(q + k): the projections of q and k are those of the multi-head layer around it.

    Costs the same order as the dot product, but every pair needs K tanh and K numbers of memory of its own.
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
    """H attentions side by side in K dimensions each, concatenated and mixed by W_O (section 3.2.2).

    The heads are a reshape of one projection, not a loop. `d_head` need not be d_model / n_heads, since `to_out`
    restores the width; with fewer `n_kv_heads`, several query heads share one key/value head.
    `out_bias` is that of W_O alone, where it differs from the others'.
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
        """Self-attention, or cross-attention when a memory is given: (B, T, D) -> (B, T, D).

        `cache` holds keys and values between decoding steps; a cross-attention's are computed once. A memory may
        have fewer rows than x: the hypotheses of one sentence, side by side, are so many more queries to it.
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
