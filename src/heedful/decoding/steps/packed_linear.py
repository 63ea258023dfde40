"""Layers for steps of a few rows: on the CPU their weights are laid out once as they are read fastest.

A plain product lays the weights out anew at every call. For many rows that is nothing; for the five rows of a beam it
is most of the work, so there oneDNN has its own copy, and does the bend that follows while the numbers are at hand. One
row is a matter of reading the weights once, in order: where there are more outputs than inputs, as (inputs, outputs);
only oneDNN, though, divides that among several threads. Small weights are not worth the way into oneDNN. A copy is made
when it is first needed.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.feedforward import FeedForward, GatedFeedForward, gelu, gelu_tanh
from heedful.nn.norms import LayerNorm, RMSNorm

SMALL = 1 << 16  # numbers of a weight

Function = Callable[[Tensor], Tensor]

# bend -> oneDNN's name for it, and the way to compute it
BENDS: dict[Function, tuple[str, str]] = {
    F.relu: ("relu", ""), gelu: ("gelu", "none"), gelu_tanh: ("gelu", "tanh"), F.silu: ("swish", ""),
}  # fmt: skip


class Linear:
    """bend(x @ weight.T + bias), (N, D) -> (N, E); a copy of the weights, so made anew when they change."""

    def __init__(self, weight: Tensor, bias: Tensor | None, bend: Function | None = None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.bend = bend
        self.packed_bend = ("none", "") if bend is None else BENDS[bend]
        self.can_pack = weight.device.type == "cpu" and weight.dtype == torch.float32 and packing_works()
        self.can_turn = weight.device.type == "cpu" and weight.size(0) >= weight.size(1)
        self.is_small = self.can_turn and weight.numel() < SMALL

    @functools.cached_property
    def packed(self) -> Tensor:
        with torch.no_grad():
            packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous())
        return packed

    @functools.cached_property
    def turned(self) -> Tensor:
        return self.weight.t().contiguous()  # (inputs, outputs)

    def __call__(self, x: Tensor) -> Tensor:
        is_one_by_one = x.size(0) == 1 and torch.get_num_threads() == 1
        if self.can_pack and not self.is_small and not is_one_by_one:
            name, way = self.packed_bend
            packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, name, [], way)
            return packed
        product = self._plain(x)
        return product if self.bend is None else self.bend(product)

    def _plain(self, x: Tensor) -> Tensor:
        if self.is_small or (x.size(0) == 1 and self.can_turn):
            return torch.mm(x, self.turned) if self.bias is None else torch.addmm(self.bias, x, self.turned)
        return F.linear(x, self.weight, self.bias)


def fused(*parts: nn.Linear, bend: Function | None = None) -> Linear:
    """Several linear layers of one input as one."""
    biases = [part.bias for part in parts if part.bias is not None]
    return Linear(torch.cat(tuple(part.weight for part in parts)), torch.cat(tuple(biases)) if biases else None, bend)


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


def quick_feed_forward(network: nn.Module) -> Function:
    """The same network on packed weights."""
    if isinstance(network, GatedFeedForward):
        both, outer, bend = fused(network.gate, network.inner), fused(network.outer), network.activation

        def gated(x: Tensor) -> Tensor:
            gate, inner = both(x).chunk(2, dim=-1)
            return outer(bend(gate) * inner)

        return gated
    assert isinstance(network, FeedForward)
    inner, outer = fused(network.inner, bend=network.activation), fused(network.outer)
    return lambda x: outer(inner(x))


def quick_norm(norm: nn.Module) -> Function:
    """The same norm without the way through the module, which costs a small step as much as the norm itself."""
    if isinstance(norm, LayerNorm):
        shape, weight, bias, eps = list(norm.normalized_shape), norm.weight.detach(), norm.bias.detach(), norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    assert isinstance(norm, RMSNorm)
    shape, weight, rms_eps = list(norm.normalized_shape), norm.weight.detach(), norm.eps
    return lambda x: torch.rms_norm(x, shape, weight, rms_eps)
