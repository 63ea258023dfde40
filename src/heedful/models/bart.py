"""BART (Lewis et al. 2019): the Transformer of 2017, to be trained by repairing spoilt text.

source ids ── embed, + learned positions, norm ── Encoder ── Memory ──┐
target ids ── embed, + learned positions, norm ── Decoder ────────────┴── VocabularyHead ── logits

What differs: positions are learned, a norm follows the embeddings, the bend is GELU, one matrix reads and writes all
words, and each word has a number added to its logit.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_positions, check_shares, check_sizes
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import bert as small_numbers
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import DecoderLayer, EncoderLayer, PostNorm
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Learned
from heedful.nn.stacks import Decoder, Encoder, LastLayer, Memory
from heedful.text import SpecialIds

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "vocab_size": 10**8,
    "d_model": 10**6,
    "n_layers": 1_000,
    "n_decoder_layers": 1_000,
    "n_heads": 10**4,
    "d_ff": 10**7,
    "max_len": 10**7,
}


@dataclass(frozen=True)
class BartConfig:
    vocab_size: int
    d_model: int = 768
    n_layers: int = 6
    n_decoder_layers: int | None = None  # as many as n_layers
    n_heads: int = 12
    d_ff: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0  # inside the feed-forward network
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    max_len: int = 1024  # learned positions
    scaled_embedding: bool = False  # times the root of d_model
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout", "attention_dropout", "activation_dropout")
        if self.d_model % self.n_heads:
            raise UserError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}")
        self.special_ids.check(self.vocab_size)


class Bart(nn.Module):
    """Source ids and the target so far in, logits of the next target token out, for all positions at once."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(
            vocab_size=config.vocab_size, d_model=config.d_model, scale=None if config.scaled_embedding else 1.0
        )
        self.source_positions = Learned(max_len=config.max_len, d_model=config.d_model)
        self.target_positions = Learned(max_len=config.max_len, d_model=config.d_model)
        self.source_norm, self.target_norm = LayerNorm(config.d_model), LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(layers=[_encoder_layer(config) for _ in range(config.n_layers)], join=LastLayer())
        depth = config.n_decoder_layers or config.n_layers
        self.decoder = Decoder(layers=[_decoder_layer(config) for _ in range(depth)])
        self.head = VocabularyHead(d_model=config.d_model, vocab_size=config.vocab_size, bias=True)
        self.tie()
        small_numbers(self)

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Teacher forcing: (B, S), (B, T), masks of the same shapes, True = a real token -> logits (B, T, V)."""
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        self.check_length(source.size(1))
        positions = torch.arange(source.size(1), device=source.device)
        x = self.dropout(self.source_norm(self.source_positions(self.embedding(source), positions)))
        mask = None if source_mask is None else padding_mask(source_mask)
        return Memory(self.encoder(x, positions=positions, mask=mask), mask)

    def decode(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Logits (B, T, V) of what follows each target token. With a cache, `target` holds only the new tokens."""
        logits: Tensor = self.head(self.hidden_states(target, memory, target_mask=target_mask, cache=cache))
        return logits

    def hidden_states(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The decoder's last vectors (B, T, D). The target's padding, on its right, needs no mask."""
        n_past, n_new = 0 if cache is None else cache.length, target.size(1)
        self.check_length(n_past + n_new)
        positions = torch.arange(n_past, n_past + n_new, device=target.device)
        x = self.dropout(self.target_norm(self.target_positions(self.embedding(target), positions)))
        mask = causal_mask(n_new, n_past + n_new, device=target.device) if n_new > 1 else None
        states: Tensor = self.decoder(
            x, memory.states, positions=positions, mask=mask, memory_mask=memory.mask, cache=cache
        )
        return states

    def make_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))

    @property
    def max_length(self) -> int:
        """The most tokens that either side takes."""
        return self.config.max_len

    def tie(self) -> None:
        """Let the output layer use the embedding's own numbers; again after loading, which replaces them."""
        self.head.share(self.embedding.table)

    def check_length(self, length: int) -> None:
        """Refuse more tokens than there are learned positions."""
        check_positions(length, self.config.max_len)


def _encoder_layer(config: BartConfig) -> EncoderLayer:
    return EncoderLayer(
        attention=_attention(config),
        feed_forward=_feed_forward(config),
        attention_residual=_residual(config),
        feed_forward_residual=_residual(config),
    )


def _decoder_layer(config: BartConfig) -> DecoderLayer:
    return DecoderLayer(
        attention=_attention(config),
        cross_attention=_attention(config),
        feed_forward=_feed_forward(config),
        attention_residual=_residual(config),
        cross_attention_residual=_residual(config),
        feed_forward_residual=_residual(config),
    )


def _attention(config: BartConfig) -> MultiHeadAttention:
    return MultiHeadAttention(d_model=config.d_model, n_heads=config.n_heads, dropout=config.attention_dropout)


def _feed_forward(config: BartConfig) -> nn.Module:
    network, activation = FEED_FORWARDS[config.activation]
    return network(d_model=config.d_model, d_ff=config.d_ff, activation=activation, dropout=config.activation_dropout)


def _residual(config: BartConfig) -> nn.Module:
    return PostNorm(LayerNorm(config.d_model), config.dropout)
