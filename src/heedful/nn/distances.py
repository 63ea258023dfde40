"""Attention to a few fixed distances: position t reads the positions t + d, for a handful of numbers d.

Gathering the keys would copy them once for each distance, and autograd would pad each slice back to the whole length.
Here each distance is one pass over shifted views, a part of the sequence at a time. The derivative of either function
is made of the two functions again, so that only the inputs are kept, and derivatives of any order exist.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

IN_CACHE = 2**18  # numbers of one pass: a megabyte, which a core has for itself


def dots_at(q: Tensor, k: Tensor, distances: Sequence[int]) -> Tensor:
    """q[t] . k[t + d], zero where t + d lies outside: (B, H, T, K) twice -> (B, H, T, len(distances))."""
    dots: Tensor = _Dots.apply(q, k, distances)  # type: ignore[no-untyped-call]
    return dots


def mix_at(weights: Tensor, v: Tensor, distances: Sequence[int]) -> Tensor:
    """The sum of weights[t, d] v[t + d]: (B, H, T, len(distances)), (B, H, T, K) -> (B, H, T, K)."""
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
        return mix_at(gradient, k, distances), _mix_back(gradient, q, distances), None


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
        return dots_at(gradient, v, distances), _mix_back(weights, gradient, distances), None


def _mix_back(weights: Tensor, x: Tensor, distances: Sequence[int]) -> Tensor:
    """What t reads at t + d, seen from t + d: the sum of weights[t - d, d] x[t - d]."""
    turned = []
    for i, d in enumerate(distances):
        here, there = _meeting(x.size(2), d)
        turned.append(
            torch.zeros_like(weights[..., i]).slice_scatter(weights[:, :, here, i], 2, there.start, there.stop)
        )
    return mix_at(torch.stack(turned, dim=-1), x, [-d for d in distances])


def _passes(x: Tensor, distances: Sequence[int]) -> Iterator[tuple[int, slice, slice]]:
    """Which distance, the positions t of one pass, and t + distance; all distances before the next part of x."""
    length = x.size(2)
    rows = max(1, IN_CACHE * length // max(1, x.numel()))
    for start in range(0, length, rows):
        for i, d in enumerate(distances):
            here, there = _meeting(length, d, start, start + rows)
            if here.start < here.stop:
                yield i, here, there


def _meeting(length: int, distance: int, start: int = 0, stop: int | None = None) -> tuple[slice, slice]:
    """The positions t from start to stop for which t + distance is inside as well, and those t + distance."""
    first = max(start, -distance)
    end = max(first, min(length if stop is None else stop, length, length - distance))
    return slice(first, end), slice(first + distance, end + distance)
