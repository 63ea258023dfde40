"""BART (Lewis et al. 2019): an encoder-decoder that is pre-trained as a denoiser.

source ids ── embed, + learned positions, norm ── Encoder ── Memory ──┐
target ids ── embed, + learned positions, norm ── Decoder ────────────┴── VocabularyHead ── logits

Differences from the Transformer of 2017: learned positions, a norm after the embeddings, GELU, one matrix for both
embeddings and the output layer, and a bias on the logits.
"""

import torch
from torch import Tensor, nn

from heedful.models.config_checks import check_positions
from heedful.models.configs import BartConfig
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import bert as bert_init
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import DecoderLayer, EncoderLayer, PostNorm
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Learned
from heedful.nn.stacks import Decoder, Encoder, LastLayer, Memory

__all__ = ["Bart", "BartConfig"]


class Bart(nn.Module):
    """An encoder-decoder with learned positions; see `Seq2Seq` for its methods."""

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
        bert_init(self)

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) of each next target token, with teacher forcing.

        `source` (B, S) and `target` (B, T) are ids; masks have their shapes, True = a real token.
        """
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        """Read source ids (B, S) once, for any number of calls of `decode`."""
        self.check_length(source.size(1))
        positions = torch.arange(source.size(1), device=source.device)
        x = self.dropout(self.source_norm(self.source_positions(self.embedding(source), positions)))
        mask = None if source_mask is None else padding_mask(source_mask)
        return Memory(self.encoder(x, positions=positions, mask=mask), mask)

    def decode(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) after each target token. With a cache, `target` holds only the new tokens."""
        logits: Tensor = self.head(self.hidden_states(target, memory, target_mask=target_mask, cache=cache))
        return logits

    def hidden_states(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the decoder's last hidden states (B, T, D). Padding on the right of the target needs no mask."""
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
        """The longest text on either side."""
        return self.config.max_len

    def tie(self) -> None:
        """Share the embedding's weight with the output layer; again after loading, which replaces weights."""
        self.head.share(self.embedding.table)

    def check_length(self, length: int) -> None:
        """Raise a UserError for more tokens than there are learned positions."""
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
