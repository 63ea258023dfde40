"""The encoder layer, the decoder layer, and the residual connection around each of their parts (figure 1)."""

from collections.abc import Callable

from torch import Tensor, nn

from .attention import MultiHeadAttention
from .dropout import Dropout
from .kv_cache import KeyValueStore, LayerCache

SubLayer = Callable[[Tensor], Tensor]


class PreNorm(nn.Module):
    """x + dropout(f(norm(x))). The stack then ends with one more norm."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, f: SubLayer, real: Tensor | None = None) -> Tensor:
        added: Tensor = self.dropout(f(self.norm(x, real)))
        return x + added


class PostNorm(nn.Module):
    """norm(x + dropout(f(x))), as in the paper of 2017."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, f: SubLayer, real: Tensor | None = None) -> Tensor:
        normed: Tensor = self.norm(x + self.dropout(f(x)), real)
        return normed


class NoResidual(nn.Module):
    """norm(dropout(f(x))), for experiments without residual connections."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, f: SubLayer, real: Tensor | None = None) -> Tensor:
        normed: Tensor = self.norm(self.dropout(f(x)), real)
        return normed


RESIDUALS: dict[str, type[PreNorm] | type[PostNorm] | type[NoResidual]] = {
    "pre": PreNorm,
    "post": PostNorm,
    "none": NoResidual,
}


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with its residual connection (figure 1, left).

    With causal attention it is also the layer of a decoder-only model; `cache` then keeps its keys and values.
    """

    def __init__(
        self,
        *,
        attention: MultiHeadAttention,
        feed_forward: nn.Module,
        attention_residual: nn.Module,
        feed_forward_residual: nn.Module,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_residual = attention_residual
        self.feed_forward_residual = feed_forward_residual

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        real: Tensor | None = None,
        cache: KeyValueStore | None = None,
    ) -> Tensor:  # (B, S, D) -> (B, S, D)
        x = self.attention_residual(
            x, lambda y: self.attention(y, mask=mask, bias=bias, positions=positions, cache=cache), real
        )
        result: Tensor = self.feed_forward_residual(x, self.feed_forward, real)
        return result


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward (figure 1, right)."""

    def __init__(
        self,
        *,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        attention_residual: nn.Module,
        cross_attention_residual: nn.Module,
        feed_forward_residual: nn.Module,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.attention_residual = attention_residual
        self.cross_attention_residual = cross_attention_residual
        self.feed_forward_residual = feed_forward_residual

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        real: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:  # (B, T, D), (B, S, D) -> (B, T, D)
        past, projected = (None, None) if cache is None else (cache.past, cache.memory)
        x = self.attention_residual(
            x, lambda y: self.attention(y, mask=mask, bias=bias, positions=positions, cache=past), real
        )
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, memory, mask=memory_mask, cache=projected), real
        )
        result: Tensor = self.feed_forward_residual(x, self.feed_forward, real)
        return result
