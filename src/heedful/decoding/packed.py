"""Linear layers for steps of a few rows: on the CPU their weights are laid out once as oneDNN reads them fastest.

A plain product lays the weights out anew at every call. For many rows that is nothing; for the five rows of a beam it
is most of the work.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear:
    """x @ weight.T + bias, (N, D) -> (N, E); a copy of the weights, so made anew when they change."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.packed: Tensor | None = None
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and packing_works():
            with torch.no_grad():
                self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return product


def fused(*parts: nn.Linear) -> Linear:
    """Several linear layers of one input as one."""
    biases = [part.bias for part in parts if part.bias is not None]
    return Linear(torch.cat(tuple(part.weight for part in parts)), torch.cat(tuple(biases)) if biases else None)


@functools.cache
def packing_works() -> bool:
    """Whether this torch has the operators, which are not part of its promised interface, and they are right."""
    try:
        with torch.no_grad():
            weight, x, bias = torch.arange(12.0).view(4, 3), torch.arange(6.0).view(2, 3), torch.arange(4.0)
            packed = torch.ops.mkldnn._reorder_linear_weight(weight)
            product = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(product, F.linear(x, weight, bias))
