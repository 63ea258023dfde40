"""Products of many rows with one matrix, of few sizes where sizes cost memory.

For every size of a product in bfloat16 that it has seen on a processor, oneDNN keeps a program of its own, a megabyte
or so, and making it takes a millisecond. Batches of text have thousands of sizes: training a model of 3 million
parameters came to 3.3 GB. With rows of zeros up to the next multiple of 128 there are a few dozen, and 0.8 GB.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROW_MULTIPLE = 128  # products in bfloat16 on a processor have a multiple of so many rows


class Linear(nn.Linear):
    """torch's, but for the sizes of its products."""

    def forward(self, x: Tensor) -> Tensor:  # (..., D) -> (..., E)
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return F.linear(x, weight, bias)
    if torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return F.linear(x, weight, bias)
    product: Tensor = _PaddedMatmul.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return product


def pad_rows(rows: Tensor) -> Tensor:
    """(M, D) with rows of zeros after them, if they are in bfloat16 on a processor."""
    missing = -len(rows) % ROW_MULTIPLE if rows.dtype == torch.bfloat16 and rows.device.type == "cpu" else 0
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


class _PaddedMatmul(torch.autograd.Function):
    """What autocast makes of a linear layer, forward and backward, with even rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            rows, narrow = _in_bfloat16(x), weight.to(torch.bfloat16)
            product = F.linear(rows, narrow, None if bias is None else bias.to(torch.bfloat16))
        ctx.save_for_backward(rows, narrow)
        ctx.shape, ctx.kinds = x.shape, (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        return product[: x.shape[:-1].numel()].view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, narrow = ctx.saved_tensors
        kind, kind_of_weight, kind_of_bias = ctx.kinds
        grad = _in_bfloat16(grads[0])
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = torch.mm(grad, narrow)[: ctx.shape[:-1].numel()].view(ctx.shape).to(kind)
        if ctx.needs_input_grad[1]:
            of_weight = torch.mm(grad.t(), rows).to(kind_of_weight)
        if ctx.needs_input_grad[2]:
            of_bias = grad.sum(dim=0).to(kind_of_bias)
        return of_x, of_weight, of_bias


def _in_bfloat16(x: Tensor) -> Tensor:
    """(..., D) -> (M, D), M even; the copy that a change of numbers takes anyway has the room for it."""
    flat = x.reshape(-1, x.size(-1))
    n_rows = len(flat)
    rows = torch.empty(n_rows + -n_rows % ROW_MULTIPLE, x.size(-1), dtype=torch.bfloat16)
    rows[:n_rows] = flat
    rows[n_rows:] = 0
    return rows
