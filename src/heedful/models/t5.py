"""T5 (Raffel et al. 2020): every task is text to text, with relative positions.

source ids ── embed ── Encoder, + bias by distance ── norm ── Memory ──┐
target ids ── embed ── Decoder, + bias by distance ── norm ────────────┴── VocabularyHead ── logits

Differences from the Transformer of 2017: nothing is added to the embeddings; each stack learns one table of biases, by
head and by distance, that all of its layers add to their scores. RMS norms before each part, no bias anywhere, and no
division by sqrt(K), since queries have small initial weights. Version 1.0 has a ReLU network and shares the embedding
with the output layer, whose input is divided by sqrt(D). Version 1.1 has a gated GELU network, a separate output
layer, and no division.
"""

import torch
from torch import Tensor, nn

from heedful.models.configs import T5Config
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import t5 as t5_init
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import DecoderLayer, EncoderLayer, PreNorm
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import RMSNorm
from heedful.nn.positions import RelativeBias
from heedful.nn.stacks import Decoder, Encoder, LastLayer, Memory

__all__ = ["T5", "T5Config"]


class T5(nn.Module):
    """An encoder-decoder with relative positions; see `Seq2Seq` for its methods."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(vocab_size=config.vocab_size, d_model=config.d_model, scale=1.0)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(
            layers=[_encoder_layer(config) for _ in range(config.n_layers)],
            join=LastLayer(),
            final_norm=_norm(config),
            bias=_relative_bias(config, bidirectional=True),
        )
        self.decoder = Decoder(
            layers=[_decoder_layer(config) for _ in range(config.n_decoder_layers or config.n_layers)],
            final_norm=_norm(config),
            bias=_relative_bias(config, bidirectional=False),
        )
        self.head = VocabularyHead(d_model=config.d_model, vocab_size=config.vocab_size)
        self.tie()
        self._initialize()

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) of each next target token, with teacher forcing.

        `source` (B, S) and `target` (B, T) are ids; masks have their shapes, True = a real token.
        """
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        """Read source ids (B, S) once, for any number of calls of `decode`."""
        positions = torch.arange(source.size(1), device=source.device)
        mask = None if source_mask is None else padding_mask(source_mask)
        memories = self.encoder(self.dropout(self.embedding(source)), positions=positions, mask=mask)
        return Memory([self.dropout(memory) for memory in memories], mask)

    def decode(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) after each target token. With a cache, `target` holds only the new tokens."""
        logits: Tensor = self.head(self.hidden_states(target, memory, target_mask=target_mask, cache=cache))
        return logits

    def hidden_states(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the input of the output layer (B, T, D). Padding on the right of the target needs no mask."""
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
        """Relative positions have no limit."""
        return

    def tie(self) -> None:
        """Share the embedding's weight with the output layer; again after loading, which replaces weights."""
        if self.config.tied:
            self.head.share(self.embedding.table)

    def _initialize(self) -> None:
        """Draw T5's initial weights. Embeddings have variance 1, since they are not scaled."""
        t5_init(self)
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


def _relative_bias(config: T5Config, *, bidirectional: bool) -> RelativeBias:
    return RelativeBias(
        n_heads=config.n_heads,
        bidirectional=bidirectional,
        n_buckets=config.n_buckets,
        max_distance=config.max_distance,
    )
