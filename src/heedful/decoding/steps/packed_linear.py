"""Linear layers for steps of a few rows on CPUs: their weights are stored once in the order in which they are read.

An ordinary product rearranges the weights in every call. For many rows this costs nothing; for the five rows of a beam
it is most of the time. So oneDNN gets a packed copy of the weights, and applies the activation as well, while the
numbers are in the cache. For one row a product only reads the weights once: it is fastest with a transposed copy, if
there are more outputs than inputs and one thread (only oneDNN divides that product among several). For small weights
the call of oneDNN costs more than it saves. A copy is made when it is first needed.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.cpu import gelu
from heedful.nn.feedforward import FeedForward, GatedFeedForward, gelu_tanh
from heedful.nn.norms import LayerNorm, RMSNorm

SMALL = 1 << 16  # weights of a matrix

Function = Callable[[Tensor], Tensor]

# activation -> oneDNN's name for it, and its algorithm
ACTIVATIONS: dict[Function, tuple[str, str]] = {
    F.relu: ("relu", ""), gelu: ("gelu", "none"), gelu_tanh: ("gelu", "tanh"), F.silu: ("swish", ""),
}  # fmt: skip


class PackedLinear:
    """activation(x @ weight.T + bias), (N, D) -> (N, E). It copies the weights: make a new one when they change."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Function | None = None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.activation = activation
        self.fused_activation = ("none", "") if activation is None else ACTIVATIONS[activation]
        self.can_pack = weight.device.type == "cpu" and weight.dtype == torch.float32 and packing_works()
        self.can_transpose = weight.device.type == "cpu" and weight.size(0) >= weight.size(1)
        self.is_small = self.can_transpose and weight.numel() < SMALL

    @functools.cached_property
    def packed(self) -> Tensor:
        """The weights in oneDNN's own order."""
        with torch.no_grad():
            packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous())
        return packed

    @functools.cached_property
    def transposed(self) -> Tensor:
        """The weights as (inputs, outputs)."""
        return self.weight.t().contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        is_one_row_on_one_thread = x.size(0) == 1 and torch.get_num_threads() == 1
        if self.can_pack and not self.is_small and not is_one_row_on_one_thread:
            name, algorithm = self.fused_activation
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, name, [], algorithm)
            return y
        product = self._product(x)
        return product if self.activation is None else self.activation(product)

    def _product(self, x: Tensor) -> Tensor:
        if self.is_small or (x.size(0) == 1 and self.can_transpose):
            weight = self.transposed
            return torch.mm(x, weight) if self.bias is None else torch.addmm(self.bias, x, weight)
        return F.linear(x, self.weight, self.bias)


def fused(*layers: nn.Linear, activation: Function | None = None) -> PackedLinear:
    """Make one layer of several linear layers with the same input; their outputs are concatenated."""
    biases = [layer.bias for layer in layers if layer.bias is not None]
    weight = torch.cat(tuple(layer.weight for layer in layers))
    return PackedLinear(weight, torch.cat(tuple(biases)) if biases else None, activation)


@functools.cache
def packing_works() -> bool:
    """Whether this torch has oneDNN's operators, which are no public interface, and they compute what we expect."""
    try:
        with torch.no_grad():
            weight, x, bias = torch.arange(12.0).view(4, 3), torch.arange(6.0).view(2, 3), torch.arange(4.0)
            packed = torch.ops.mkldnn._reorder_linear_weight(weight)
            product = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(product, F.linear(x, weight, bias))


def packed_feed_forward(network: nn.Module) -> Function:
    """Return the function of a feed-forward network, with packed weights."""
    if isinstance(network, GatedFeedForward):
        both, outer, activation = fused(network.gate, network.inner), fused(network.outer), network.activation

        def gated(x: Tensor) -> Tensor:
            gate, inner = both(x).chunk(2, dim=-1)
            return outer(activation(gate) * inner)

        return gated
    assert isinstance(network, FeedForward)
    inner, outer = fused(network.inner, activation=network.activation), fused(network.outer)
    return lambda x: outer(inner(x))


def norm_function(norm: nn.Module) -> Function:
    """Return the function of a norm. In a small step, the call of a module costs as much as the norm itself."""
    if isinstance(norm, LayerNorm):
        shape, weight, bias, eps = list(norm.normalized_shape), norm.weight.detach(), norm.bias.detach(), norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    assert isinstance(norm, RMSNorm)
    shape, weight, rms_eps = list(norm.normalized_shape), norm.weight.detach(), norm.eps
    return lambda x: torch.rms_norm(x, shape, weight, rms_eps)
