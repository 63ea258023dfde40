"""Dropout, with fewer random numbers on a CPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """In training, set each element to zero with probability p, and multiply the remaining elements by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"a dropout probability lies in [0, 1), found {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped: Tensor = _CheapDropout.apply(x, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _CheapDropout(torch.autograd.Function):
    """Dropout in which one random number of 64 bits serves four elements.

    On a CPU, drawing a random number for each element takes longer than the rest of dropout. An element is kept if its
    16 bits, as a whole number, are at least p of their range.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        n_draws = -(-x.numel() // 4)
        bits = torch.empty(n_draws, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        kept = bits[: x.numel()].view(x.shape) >= round(p * 2**16) - 2**15
        factor = kept.to(x.dtype).mul_(1.0 / (1.0 - p))
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return grads[0] * factor, None
