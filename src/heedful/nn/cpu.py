"""Workarounds for bfloat16 on CPUs, where PyTorch computes with oneDNN: padded products and GELU, attention in float32.

oneDNN compiles and keeps a program of about 1 MB for each size of a bfloat16 product or GELU, which takes about a
millisecond. Batches of text have thousands of sizes: training a model of 3 million parameters took 3.3 GB, and a BERT
4.7 GB. Padded with rows of zeros to multiples of 128, there are a few dozen sizes, and the former takes 0.8 GB.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROW_MULTIPLE = 128


class Linear(nn.Linear):
    """`torch.nn.Linear` whose bfloat16 products on a CPU have padded rows."""

    def forward(self, x: Tensor) -> Tensor:  # (..., D) -> (..., E)
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x @ weight.T + bias, with padded rows under bfloat16 autocast on a CPU."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return F.linear(x, weight, bias)
    if torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return F.linear(x, weight, bias)
    product: Tensor = _PaddedMatmul.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return product


def pad_rows(rows: Tensor) -> Tensor:
    """Pad (M, D) with rows of zeros to a multiple of ROW_MULTIPLE, if it is bfloat16 on a CPU."""
    missing = -len(rows) % ROW_MULTIPLE if rows.dtype == torch.bfloat16 and rows.device.type == "cpu" else 0
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


class _PaddedMatmul(torch.autograd.Function):
    """A linear layer under bfloat16 autocast, forward and backward, with padded rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            rows, narrow = _in_bfloat16(x), weight.to(torch.bfloat16)
            product = F.linear(rows, narrow, None if bias is None else bias.to(torch.bfloat16))
        ctx.save_for_backward(rows, narrow)
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        return product[: x.shape[:-1].numel()].view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, narrow = ctx.saved_tensors
        x_dtype, weight_dtype, bias_dtype = ctx.dtypes
        grad = _in_bfloat16(grads[0])
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.mm(grad, narrow)[: ctx.shape[:-1].numel()].view(ctx.shape).to(x_dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = torch.mm(grad.t(), rows).to(weight_dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum(dim=0).to(bias_dtype)
        return grad_x, grad_weight, grad_bias


def _in_bfloat16(x: Tensor) -> Tensor:
    """Convert (..., D) to bfloat16 (M, D), padded with rows of zeros; the conversion copies anyway."""
    flat = x.reshape(-1, x.size(-1))
    n_rows = len(flat)
    rows = torch.empty(n_rows + -n_rows % ROW_MULTIPLE, x.size(-1), dtype=torch.bfloat16)
    rows[:n_rows] = flat
    rows[n_rows:] = 0
    return rows


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    scale: float | None,
    dropout: float,
    is_causal: bool = False,
) -> Tensor:
    """Call PyTorch's kernel; for training in bfloat16 on a CPU in float32, whose backward pass is up to 10x faster."""
    kernel = partial(F.scaled_dot_product_attention, scale=scale, dropout_p=dropout, is_causal=is_causal)
    if q.dtype is not torch.bfloat16 or q.device.type != "cpu" or not q.requires_grad:
        return kernel(q, k, v, attn_mask=mask)
    if mask is not None and mask.is_floating_point():
        mask = mask.float()
    with torch.autocast("cpu", enabled=False):
        return kernel(q.float(), k.float(), v.float(), attn_mask=mask).to(q.dtype)


def gelu(x: Tensor) -> Tensor:
    """Compute the exact GELU, with padded rows for bfloat16 on a CPU."""
    if x.dtype != torch.bfloat16 or x.device.type != "cpu":
        return F.gelu(x)
    rows = x.reshape(-1, x.size(-1))
    return F.gelu(pad_rows(rows))[: len(rows)].view(x.shape)
