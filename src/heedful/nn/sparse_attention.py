"""Sparse attention: each query reads a few keys, so that long texts cost less than their square.

A pattern defines which pairs of positions may attend (`may_attend`) and how to compute just those pairs (`attend`).
`PatternAttention(pattern)` is an `attend` for a multi-head layer. Its result equals full attention under the pattern's
mask (`pattern_mask`). A pattern with `causal=True` hides future positions itself.

The second half computes attention to a few fixed distances (for `Dilated`). Gathering the keys would copy them once for
each distance, and autograd would pad each slice to the whole length. Here each distance is one pass over shifted views,
a part of the sequence at a time. The derivatives of the two functions are made of the same two functions, so that only
the inputs are kept, and derivatives of every order exist.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import attend_fused, masked_softmax, share_heads
from .masks import combine


class AttentionPattern(Protocol):
    """Which keys each query reads, and a way to compute only these pairs."""

    @property
    def causal(self) -> bool: ...

    def may_attend(self, query: Tensor, key: Tensor) -> Tensor:
        """Return whether each pair of positions is in the pattern; query and key broadcast against each other."""
        ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, *, scale: float, dropout: float) -> Tensor:
        """Compute self-attention: q, k, v (B, H, T, K); real (B, T), True = a real key -> (B, H, T, K)."""
        ...


class PatternAttention:
    """An `attend` (see `heedful.nn.attention.Attend`) that computes only the pairs of a pattern."""

    def __init__(self, pattern: AttentionPattern) -> None:
        self.pattern = pattern

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
    ) -> Tensor:
        if bias is not None:
            raise ValueError("a pattern takes no bias on the scores, which would be as large as full attention")
        scale = q.size(-1) ** -0.5 if scale is None else scale
        k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
        hides_keys_only = mask is None or (mask.dim() == 4 and mask.size(1) == 1 and mask.size(2) == 1)
        if hides_keys_only and q.size(2) == k.size(2):
            real = None if mask is None else mask[:, 0, 0].expand(q.size(0), -1)  # (B, S)
            return self.pattern.attend(q, k, v, real, scale=scale, dropout=dropout)
        # A few queries against a cache, or a mask that differs from query to query: compute full attention.
        own = pattern_mask(self.pattern, q.size(2), k.size(2), device=q.device)
        return attend_fused(q, k, v, combine(own, mask), scale=scale, dropout=dropout)


def pattern_mask(
    pattern: AttentionPattern, n_queries: int, n_keys: int, *, device: torch.device | None = None
) -> Tensor:
    """Return the pattern as a mask (T, S); the queries are the last T of the S keys."""
    query = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    return _allowed(pattern, query, torch.arange(n_keys, device=device)[None, :])


def _allowed(pattern: AttentionPattern, query: Tensor, key: Tensor) -> Tensor:
    allowed = pattern.may_attend(query, key)
    return allowed & (key <= query) if pattern.causal else allowed


@dataclass(frozen=True)
class Local:
    """Neighbours: keys at most `span` positions away."""

    span: int
    causal: bool = False

    def may_attend(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() <= self.span

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, *, scale: float, dropout: float) -> Tensor:
        # With blocks as wide as the span, neighbours lie in the block before, the own block and the one after.
        offsets = (-1, 0) if self.causal else (-1, 0, 1)
        return attend_in_blocks(self, q, k, v, real, width=self.span, offsets=offsets, scale=scale, dropout=dropout)


@dataclass(frozen=True)
class Window:
    """Fixed blocks of `span` positions: each query reads its own block."""

    span: int
    causal: bool = False

    def may_attend(self, query: Tensor, key: Tensor) -> Tensor:
        return query // self.span == key // self.span

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, *, scale: float, dropout: float) -> Tensor:
        return attend_in_blocks(self, q, k, v, real, width=self.span, offsets=(0,), scale=scale, dropout=dropout)


@dataclass(frozen=True)
class Strided:
    """Every `span`-th key, counted from the query, at 1 / `span` of the cost."""

    span: int
    causal: bool = False

    def may_attend(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.span == 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, *, scale: float, dropout: float) -> Tensor:
        # Positions with the same remainder attend to each other, as one shorter sequence.
        length = q.size(2)
        span = min(self.span, length)  # a longer stride gives the same pairs but costs more
        exists = torch.ones(q.size(0), length, dtype=torch.bool, device=q.device) if real is None else real
        mask = _to_strides(exists[:, None, :, None], span).transpose(2, 3)  # (B x span, 1, 1, T / span)
        q, k, v = (_to_strides(x, span) for x in (q, k, v))
        if self.causal:
            mask = mask & pattern_mask(Strided(1, causal=True), q.size(2), q.size(2), device=q.device)
        return _from_strides(attend_fused(q, k, v, mask, scale=scale, dropout=dropout), span)[:, :, :length]


@dataclass(frozen=True)
class Dilated:
    """Gaps that double: the query itself and the keys 1, 2, 4, 8, … away, `span` of them on each side."""

    span: int
    causal: bool = False

    def may_attend(self, query: Tensor, key: Tensor) -> Tensor:
        distance = (query - key).abs()
        return (distance & (distance - 1) == 0) & (distance < 1 << min(self.span, 62))  # zero or a power of two

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, *, scale: float, dropout: float) -> Tensor:
        length = q.size(2)
        back = [-(1 << i) for i in range(min(self.span, (length - 1).bit_length()))]  # not farther than the sequence
        distances = [0, *back, *([] if self.causal else [-d for d in back])]
        keys = torch.arange(length, device=q.device)[:, None] + torch.tensor(distances, device=q.device)  # (T, few)
        may = (keys >= 0) & (keys < length)
        if real is not None:
            may = (may & real[:, keys.clamp(0, length - 1)])[:, None]  # (B, 1, T, few)
        weights = masked_softmax(gathered_scores(q, k, distances) * scale, may)  # (B, H, T, few)
        return gathered_mix(F.dropout(weights, dropout), v, distances)


@dataclass(frozen=True)
class Sparse:
    """Blocks with global tokens: each query reads its block, the two next to it, and the first `n_global` positions.

    Global tokens attend to all and all attend to them, as in Longformer and BigBird; if causal, only to their past.
    """

    span: int
    causal: bool = False
    n_global: int = 1

    def may_attend(self, query: Tensor, key: Tensor) -> Tensor:
        near = (query // self.span - key // self.span).abs() <= 1
        return near | (query < self.n_global) | (key < self.n_global)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, *, scale: float, dropout: float) -> Tensor:
        n_global = min(self.n_global, q.size(2))
        offsets = (-1, 0) if self.causal else (-1, 0, 1)
        near = attend_in_blocks(
            self, q, k, v, real, width=self.span, offsets=offsets, n_global=n_global, scale=scale, dropout=dropout
        )
        first = torch.arange(n_global, device=q.device)[:, None]
        own = _allowed(self, first, torch.arange(k.size(2), device=q.device)[None, :])
        mask = own if real is None else own & real[:, None, None]
        overall = attend_fused(q[:, :, :n_global], k, v, mask, scale=scale, dropout=dropout)
        return torch.cat([overall, near[:, :, n_global:]], dim=2)


PATTERNS: dict[str, type[Local] | type[Window] | type[Strided] | type[Dilated] | type[Sparse]] = {
    "local": Local,
    "window": Window,
    "strided": Strided,
    "dilated": Dilated,
    "sparse": Sparse,
}


class TopKAttention:
    """An `attend` in which each query reads only the `span` keys with its highest scores.

    All scores are computed, so this saves no time; only the highest ones get weight and gradient.
    """

    def __init__(self, span: int, causal: bool = False) -> None:
        self.span = span
        self.causal = causal

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
    ) -> Tensor:
        k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
        scores = q @ k.transpose(-2, -1) * (q.size(-1) ** -0.5 if scale is None else scale)  # (B, H, T, S)
        scores = scores if bias is None else scores + bias
        all_pairs = pattern_mask(Strided(1, causal=self.causal), q.size(2), k.size(2), device=q.device)
        may = (all_pairs if mask is None else all_pairs & mask).expand_as(scores)
        kept = scores.detach().masked_fill(~may, -torch.inf).topk(min(self.span, k.size(2)), dim=-1).indices
        top_k = torch.zeros_like(may).scatter(-1, kept, True)
        return F.dropout(masked_softmax(scores, may & top_k), dropout) @ v


def attend_in_blocks(
    pattern: AttentionPattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    real: Tensor | None,
    *,
    width: int,
    offsets: Sequence[int],
    n_global: int = 0,
    scale: float,
    dropout: float,
) -> Tensor:
    """Compute a pattern in blocks: each block of queries reads the key blocks at `offsets` from it and the global keys.

    Time and memory grow with T x (len(offsets) x width + n_global), not with the square of T.
    """
    batch, n_heads, length, d_head = q.shape
    if length <= len(offsets) * width:  # each block would read all keys, and padding too
        own = pattern_mask(pattern, length, length, device=q.device)
        seen = own if real is None else own & real[:, None, None]
        return attend_fused(q, k, v, seen, scale=scale, dropout=dropout)
    n_blocks = -(-length // width)
    query = torch.arange(n_blocks * width, device=q.device).view(n_blocks, width)
    near = torch.cat([query + offset * width for offset in offsets], dim=1)  # (n, len(offsets) x width)
    everywhere = torch.arange(n_global, device=q.device).expand(n_blocks, -1)
    key = torch.cat([everywhere, near], dim=1)  # (n, M), M keys for each block of queries
    # Keys outside of the sequence do not count, and a global key that is also near must not count twice.
    counts = torch.cat([torch.ones_like(everywhere, dtype=torch.bool), (near >= n_global) & (near < length)], dim=1)
    key = key.clamp(0, length - 1)
    may = (_allowed(pattern, query[:, :, None], key[:, None, :]) & counts[:, None, :]).expand(batch, -1, -1, -1)
    if real is not None:
        may = may & real[:, key][:, :, None, :]  # (B, n, width, M)

    # Heads of a multi-head layer are (B, T, H, K) in memory, so this order gathers whole rows.
    blocks = F.pad(q.transpose(1, 2), (0, 0, 0, 0, 0, n_blocks * width - length))
    blocks = blocks.reshape(batch * n_blocks, width, n_heads, d_head).transpose(1, 2)  # (B x n, H, width, K)
    k, v = (x.transpose(1, 2)[:, key].flatten(0, 1).transpose(1, 2) for x in (k, v))  # (B x n, H, M, K)
    mixed = attend_fused(blocks, k, v, may.flatten(0, 1)[:, None], scale=scale, dropout=dropout)
    return mixed.transpose(1, 2).reshape(batch, n_blocks * width, n_heads, d_head)[:, :length].transpose(1, 2)


def _to_strides(x: Tensor, span: int) -> Tensor:
    """Collect the positions with remainder r in row r, padded: (B, H, T, K) -> (B x span, H, T / span, K)."""
    batch, n_heads, length, d_head = x.shape
    n_columns = -(-length // span)
    padded = F.pad(x, (0, 0, 0, n_columns * span - length))
    rows = padded.reshape(batch, n_heads, n_columns, span, d_head).permute(0, 3, 1, 2, 4)
    return rows.reshape(batch * span, n_heads, n_columns, d_head)


def _from_strides(x: Tensor, span: int) -> Tensor:
    rows, n_heads, length, d_head = x.shape
    parts = x.reshape(rows // span, span, n_heads, length, d_head).permute(0, 2, 3, 1, 4)
    return parts.reshape(rows // span, n_heads, length * span, d_head)


# Attention to fixed distances

PASS_SIZE = 2**18  # elements of one pass: 1 MB, the size of a core's own cache


def gathered_scores(q: Tensor, k: Tensor, distances: Sequence[int]) -> Tensor:
    """Return q[t] . k[t + d], zero if t + d is outside: (B, H, T, K) twice -> (B, H, T, len(distances))."""
    dots: Tensor = _Dots.apply(q, k, distances)  # type: ignore[no-untyped-call]
    return dots


def gathered_mix(weights: Tensor, v: Tensor, distances: Sequence[int]) -> Tensor:
    """Return the sums over d of weights[t, d] v[t + d]: (B, H, T, len(distances)), (B, H, T, K) -> (B, H, T, K)."""
    mixed: Tensor = _Mix.apply(weights, v, distances)  # type: ignore[no-untyped-call]
    return mixed


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, distances: Sequence[int]) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.distances = distances
        dots = q.new_zeros(*q.shape[:3], len(distances))
        for i, here, there in _passes(q, distances):
            dots[:, :, here, i] = (q[:, :, here] * k[:, :, there]).sum(dim=-1)
        return dots

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,), (q, k), distances = gradients, ctx.saved_tensors, ctx.distances
        return gathered_mix(gradient, k, distances), _mix_back(gradient, q, distances), None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, v: Tensor, distances: Sequence[int]) -> Tensor:
        ctx.save_for_backward(weights, v)
        ctx.distances = distances
        mixed = torch.zeros_like(v)
        for i, here, there in _passes(v, distances):
            mixed[:, :, here].addcmul_(weights[:, :, here, i, None], v[:, :, there])
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,), (weights, v), distances = gradients, ctx.saved_tensors, ctx.distances
        return gathered_scores(gradient, v, distances), _mix_back(weights, gradient, distances), None


def _mix_back(weights: Tensor, x: Tensor, distances: Sequence[int]) -> Tensor:
    """Return the sums over d of weights[t - d, d] x[t - d], the gradients of the values that each position read."""
    turned = []
    for i, d in enumerate(distances):
        here, there = _meeting(x.size(2), d)
        turned.append(
            torch.zeros_like(weights[..., i]).slice_scatter(weights[:, :, here, i], 2, there.start, there.stop)
        )
    return gathered_mix(torch.stack(turned, dim=-1), x, [-d for d in distances])


def _passes(x: Tensor, distances: Sequence[int]) -> Iterator[tuple[int, slice, slice]]:
    """Yield (index of the distance, positions t, positions t + distance); all distances for one part of x at a time."""
    length = x.size(2)
    rows = max(1, PASS_SIZE * length // max(1, x.numel()))
    for start in range(0, length, rows):
        for i, d in enumerate(distances):
            here, there = _meeting(length, d, start, start + rows)
            if here.start < here.stop:
                yield i, here, there


def _meeting(length: int, distance: int, start: int = 0, stop: int | None = None) -> tuple[slice, slice]:
    """Return the positions t from start to stop for which t + distance is inside, and these t + distance."""
    first = max(start, -distance)
    end = max(first, min(length if stop is None else stop, length, length - distance))
    return slice(first, end), slice(first + distance, end + distance)
