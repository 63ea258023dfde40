"""The feed-forward network: the same two matrices at every position, with a bend between them and none after."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import Linear, pad_rows
from .dropout import Dropout


class FeedForward(nn.Module):
    """D -> F -> D (section 3.3)."""

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
    """D -> F twice, one branch gating the other, -> D (Shazeer 2020; with SiLU it is SwiGLU)."""

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


def gelu(x: Tensor) -> Tensor:
    """x times the share of a normal distribution below x. Of even rows where oneDNN computes it: it keeps a program for
    every size, as of a product (`nn.linear`), and a BERT came to 4.7 GB."""
    if x.dtype != torch.bfloat16 or x.device.type != "cpu":
        return F.gelu(x)
    rows = x.reshape(-1, x.size(-1))
    return F.gelu(pad_rows(rows))[: len(rows)].view(x.shape)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as GPT-2 and T5 v1.1 compute it, through tanh."""
    return F.gelu(x, approximate="tanh")


# name -> (the network, its bend)
FEED_FORWARDS: dict[str, tuple[type[FeedForward] | type[GatedFeedForward], Callable[[Tensor], Tensor]]] = {
    "relu": (FeedForward, F.relu),
    "gelu": (FeedForward, gelu),
    "gelu_tanh": (FeedForward, gelu_tanh),
    "swish": (FeedForward, F.silu),
    "swiglu": (GatedFeedForward, F.silu),
    "geglu": (GatedFeedForward, gelu_tanh),
}
