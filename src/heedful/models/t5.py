"""T5 (Raffel et al. 2020): every task is text to text, and positions are distances.

source ids ── embed ── Encoder, + bias by distance ── norm ── Memory ──┐
target ids ── embed ── Decoder, + bias by distance ── norm ────────────┴── VocabularyHead ── logits

What differs: no position is added to the embeddings; each stack learns one table of numbers, by distance and head, that
all of its layers add to their scores. Norms are RMS norms, before each part. There is no bias anywhere, and no division
by the root of K: queries start out so small that it is not needed. Version 1.0 has a plain ReLU network and writes with
the embedding matrix, after a division by the root of D; version 1.1 has a gated GELU network and an output matrix of
its own, and does not divide.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_shares, check_sizes
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import t5 as balanced
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import DecoderLayer, EncoderLayer, PreNorm
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import RMSNorm
from heedful.nn.positions import RelativeBias
from heedful.nn.stacks import Decoder, Encoder, LastLayer, Memory
from heedful.text import SpecialIds

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "vocab_size": 10**8,
    "d_model": 10**6,
    "d_head": 10**6,
    "n_layers": 1_000,
    "n_decoder_layers": 1_000,
    "n_heads": 10**4,
    "d_ff": 10**7,
    "max_len": 10**9,
    "n_buckets": 10**6,
    "max_distance": 10**9,
}


@dataclass(frozen=True)
class T5Config:
    vocab_size: int
    d_model: int = 512
    n_layers: int = 6
    n_decoder_layers: int | None = None  # as many as n_layers
    n_heads: int = 8
    d_head: int = 64
    d_ff: int = 2048
    dropout: float = 0.1
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "geglu", "swiglu"] = "relu"
    n_buckets: int = 32  # of distances
    max_distance: int = 128  # all that lies beyond is in the last bucket
    max_len: int = 512  # the length that training stays below; distances know no last one
    norm_eps: float = 1e-6
    tied: bool = True  # version 1.0: the output layer is the embedding
    scaled: bool | None = None  # its input is divided by the root of d_model; by default when it is tied
    special_ids: SpecialIds = field(default_factory=SpecialIds)
    prefixes: dict[str, str] = field(default_factory=dict)  # task -> what is told before each text, e.g. "summarize: "

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout")
        if not 0.0 < self.norm_eps < 1.0:
            raise UserError(f"'norm_eps' must lie between 0 and 1, found {self.norm_eps}")
        if self.n_buckets < 4 or self.n_buckets % 4:
            raise UserError(f"n_buckets = {self.n_buckets}: must be a multiple of 4: back and forth, near and far")
        if self.max_distance <= self.n_buckets // 2:
            raise UserError(
                f"max_distance = {self.max_distance}: must be above half of n_buckets, where single distances end"
            )
        self.special_ids.check(self.vocab_size)

    @property
    def output_scale(self) -> float:
        """What the last states are multiplied by before the output layer."""
        return self.d_model**-0.5 if (self.tied if self.scaled is None else self.scaled) else 1.0


class T5(nn.Module):
    """Source ids and the target so far in, logits of the next target token out, for all positions at once."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(vocab_size=config.vocab_size, d_model=config.d_model, scale=1.0)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(
            layers=[_encoder_layer(config) for _ in range(config.n_layers)],
            join=LastLayer(),
            final_norm=_norm(config),
            bias=_distances(config, bidirectional=True),
        )
        self.decoder = Decoder(
            layers=[_decoder_layer(config) for _ in range(config.n_decoder_layers or config.n_layers)],
            final_norm=_norm(config),
            bias=_distances(config, bidirectional=False),
        )
        self.head = VocabularyHead(d_model=config.d_model, vocab_size=config.vocab_size)
        self.tie()
        self._initialise()

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Teacher forcing: (B, S), (B, T), masks of the same shapes, True = a real token -> logits (B, T, V)."""
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        positions = torch.arange(source.size(1), device=source.device)
        mask = None if source_mask is None else padding_mask(source_mask)
        memories = self.encoder(self.dropout(self.embedding(source)), positions=positions, mask=mask)
        return Memory([self.dropout(memory) for memory in memories], mask)

    def decode(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Logits (B, T, V) of what follows each target token. With a cache, `target` holds only the new tokens."""
        logits: Tensor = self.head(self.hidden_states(target, memory, target_mask=target_mask, cache=cache))
        return logits

    def hidden_states(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """What the output layer is applied to (B, T, D). The target's padding, on its right, needs no mask."""
        n_past, n_new = 0 if cache is None else cache.length, target.size(1)
        positions = torch.arange(n_past, n_past + n_new, device=target.device)
        mask = causal_mask(n_new, n_past + n_new, device=target.device) if n_new > 1 else None
        x = self.decoder(
            self.dropout(self.embedding(target)),
            memory.states,
            positions=positions,
            mask=mask,
            memory_mask=memory.mask,
            cache=cache,
        )
        states: Tensor = self.dropout(x)
        return states if self.config.output_scale == 1.0 else states * self.config.output_scale

    def make_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))

    @property
    def max_length(self) -> None:
        """Distances know no last position."""
        return

    def tie(self) -> None:
        """Let the output layer use the embedding's own numbers; again after loading, which replaces them."""
        if self.config.tied:
            self.head.share(self.embedding.table)

    def _initialise(self) -> None:
        """T5's own start. Embeddings have variance one, since nothing multiplies them."""
        balanced(self)
        nn.init.normal_(self.embedding.table.weight)
        for stack in (self.encoder, self.decoder):
            assert isinstance(stack.bias, RelativeBias)
            nn.init.normal_(stack.bias.table.weight, std=self.config.d_model**-0.5)


def _encoder_layer(config: T5Config) -> EncoderLayer:
    return EncoderLayer(
        attention=_attention(config),
        feed_forward=_feed_forward(config),
        attention_residual=_residual(config),
        feed_forward_residual=_residual(config),
    )


def _decoder_layer(config: T5Config) -> DecoderLayer:
    return DecoderLayer(
        attention=_attention(config),
        cross_attention=_attention(config),
        feed_forward=_feed_forward(config),
        attention_residual=_residual(config),
        cross_attention_residual=_residual(config),
        feed_forward_residual=_residual(config),
    )


def _attention(config: T5Config) -> MultiHeadAttention:
    return MultiHeadAttention(
        d_model=config.d_model,
        n_heads=config.n_heads,
        d_head=config.d_head,
        bias=False,
        dropout=config.dropout,
        scale=1.0,
    )


def _feed_forward(config: T5Config) -> nn.Module:
    network, activation = FEED_FORWARDS[config.activation]
    return network(d_model=config.d_model, d_ff=config.d_ff, activation=activation, bias=False, dropout=config.dropout)


def _residual(config: T5Config) -> nn.Module:
    return PreNorm(_norm(config), config.dropout)


def _norm(config: T5Config) -> RMSNorm:
    return RMSNorm(config.d_model, eps=config.norm_eps)


def _distances(config: T5Config, *, bidirectional: bool) -> RelativeBias:
    return RelativeBias(
        n_heads=config.n_heads,
        bidirectional=bidirectional,
        n_buckets=config.n_buckets,
        max_distance=config.max_distance,
    )
