"""Attention to a few fixed distances: position t reads the positions t + d, for a handful of numbers d.

Gathering the keys would copy them once for each distance, and autograd would pad each slice back to the whole length.
Here each distance is one pass over shifted views. The derivative of either function is made of the two functions again,
so that only the inputs are kept, and derivatives of any order exist.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


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
        for i, d in enumerate(distances):
            here, there = _meeting(q.size(2), d)
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
        for i, d in enumerate(distances):
            here, there = _meeting(v.size(2), d)
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


def _meeting(length: int, distance: int) -> tuple[slice, slice]:
    """The positions t for which t + distance is inside as well, and those t + distance."""
    first = max(0, -distance)
    end = max(first, min(length, length - distance))  # none, when the distance is longer than the sequence
    return slice(first, end), slice(first + distance, end + distance)
