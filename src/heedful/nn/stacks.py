"""Stacks of layers, and which encoder layers a decoder reads.

A stack takes built layers; given the same layer N times, it shares the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .kv_cache import Cache


@dataclass(frozen=True)
class Memory:
    """What a decoder reads of an encoder: one tensor for all decoder layers, or one for each, and the mask."""

    states: list[Tensor]  # each (B, S, D)
    mask: Tensor | None  # (B, 1, 1, S)

    def rows(self, index: Tensor) -> "Memory":
        """Select sentences, in the order of `index`, some perhaps several times."""
        return Memory([state[index] for state in self.states], None if self.mask is None else self.mask[index])


class LastLayer(nn.Module):
    """Every decoder layer reads the last encoder layer, as in the paper."""

    def forward(self, outputs: list[Tensor]) -> list[Tensor]:
        return outputs[-1:]


class MatchingLayer(nn.Module):
    """Decoder layer i reads encoder layer i; with different depths, the layer at the same relative depth."""

    def __init__(self, *, n_encoder_layers: int, n_decoder_layers: int) -> None:
        super().__init__()
        self.reads = [-(-(i + 1) * n_encoder_layers // n_decoder_layers) - 1 for i in range(n_decoder_layers)]

    def forward(self, outputs: list[Tensor]) -> list[Tensor]:
        return [outputs[i] for i in self.reads]


class LearnedMix(nn.Module):
    """Each decoder layer reads its own learned average of all encoder layers; initially all weights are equal."""

    def __init__(self, *, n_encoder_layers: int, n_decoder_layers: int) -> None:
        super().__init__()
        self.mixture = nn.Parameter(torch.zeros(n_decoder_layers, n_encoder_layers))

    def forward(self, outputs: list[Tensor]) -> list[Tensor]:
        mixed = torch.einsum("ne,ebsd->nbsd", self.mixture.softmax(dim=-1), torch.stack(outputs))
        return list(mixed.unbind())


class Encoder(nn.Module):
    """N encoder layers. `join` turns their outputs into the memories: one for all decoder layers, or one for each.

    `bias` maps (query positions, key positions) to a bias of the scores that all layers share.
    """

    def __init__(
        self,
        *,
        layers: Sequence[nn.Module],
        join: nn.Module,
        final_norm: nn.Module | None = None,
        bias: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.join = join
        self.final_norm = final_norm
        self.bias = bias

    def forward(
        self, x: Tensor, *, positions: Tensor, mask: Tensor | None = None, real: Tensor | None = None
    ) -> list[Tensor]:
        """Return the memories, each (B, S, D), for x (B, S, D); `real` (B, S), True = a real token, is for norms."""
        bias = None if self.bias is None else self.bias(positions, positions).to(x.dtype)
        outputs = []
        for layer in self.layers:
            x = layer(x, mask=mask, bias=bias, positions=positions, real=real)
            outputs.append(x)
        memories: list[Tensor] = self.join(outputs)  # each (B, S, D)
        return memories if self.final_norm is None else [self.final_norm(memory, real) for memory in memories]


class Decoder(nn.Module):
    """N decoder layers. Layer i reads memories[i], or the only memory."""

    def __init__(
        self, *, layers: Sequence[nn.Module], final_norm: nn.Module | None = None, bias: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.bias = bias

    def forward(
        self,
        x: Tensor,
        memories: Sequence[Tensor],
        *,
        positions: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        real: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:  # (B, T, D) -> (B, T, D)
        bias = None
        if self.bias is not None:
            keys = positions if cache is None else torch.arange(cache.length + x.size(1), device=x.device)
            bias = self.bias(positions, keys).to(x.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(
                x,
                memories[i if len(memories) > 1 else 0],
                mask=mask,
                memory_mask=memory_mask,
                bias=bias,
                positions=positions,
                real=real,
                cache=None if cache is None else cache.layers[i],
            )
        return x if self.final_norm is None else self.final_norm(x, real)
