"""The feed-forward network: two linear layers with an activation between them, the same for every position."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import Linear, gelu
from .dropout import Dropout


class FeedForward(nn.Module):
    """Two linear layers, D -> F -> D (section 3.3)."""

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int,
        activation: Callable[[Tensor], Tensor],
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff, bias=bias)
        self.outer = Linear(d_ff, d_model, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, T, D)
        result: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return result


class GatedFeedForward(nn.Module):
    """A gated network: D -> F twice, their product -> D (Shazeer 2020; with SiLU it is SwiGLU)."""

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int,
        activation: Callable[[Tensor], Tensor],
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.gate = Linear(d_model, d_ff, bias=bias)
        self.inner = Linear(d_model, d_ff, bias=bias)
        self.outer = Linear(d_ff, d_model, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.outer(self.dropout(self.activation(self.gate(x)) * self.inner(x)))
        return result


def gelu_tanh(x: Tensor) -> Tensor:
    """Compute GELU by its tanh approximation, as GPT-2 and T5 1.1 do."""
    return F.gelu(x, approximate="tanh")


# name -> (network, activation)
FEED_FORWARDS: dict[str, tuple[type[FeedForward] | type[GatedFeedForward], Callable[[Tensor], Tensor]]] = {
    "relu": (FeedForward, F.relu),
    "gelu": (FeedForward, gelu),
    "gelu_tanh": (FeedForward, gelu_tanh),
    "swish": (FeedForward, F.silu),
    "swiglu": (GatedFeedForward, F.silu),
    "geglu": (GatedFeedForward, gelu_tanh),
}
