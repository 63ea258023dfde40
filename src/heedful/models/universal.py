"""The Universal Transformer (Dehghani et al. 2018): one layer, applied several times.

source ids ── embed ── (+ position, + step ── encoder layer) × up to n_steps ── Memory ──┐
target ids ── embed ── (+ position, + step ── decoder layer) × up to n_steps ────────────┴── VocabularyHead ── logits

Differences from the Transformer of 2017: the encoder and the decoder have one layer each, whose weights are used in
every step; before each step, codes of the position and of the step are added. With adaptive halting, each position
decides after how many steps it stops, and the number of steps adds to the loss.
"""

import torch
from torch import Tensor, nn

from heedful.models.configs import UniversalConfig
from heedful.nn.adaptive_computation import ActOutput, Halting, Recurrence
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import xavier
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import DecoderLayer, EncoderLayer, PostNorm
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import LayerNorm
from heedful.nn.stacks import Memory

__all__ = ["Universal", "UniversalConfig"]


class Universal(nn.Module):
    """An encoder-decoder of recurrent layers; see `Seq2Seq` for its methods."""

    def __init__(self, config: UniversalConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = TokenEmbedding(vocab_size=config.source_vocab_size, d_model=config.d_model)
        self.target_embedding = self.source_embedding
        if config.tied != "all":
            self.target_embedding = TokenEmbedding(vocab_size=config.target_vocab_size, d_model=config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder_layer, self.decoder_layer = _encoder_layer(config), _decoder_layer(config)
        self.encoder_steps = Recurrence(n_steps=config.n_steps, halting=_halting(config))
        self.decoder_steps = Recurrence(n_steps=config.n_decoder_steps or config.n_steps, halting=_halting(config))
        self.head = VocabularyHead(d_model=config.d_model, vocab_size=config.target_vocab_size)
        self.tie()
        xavier(self)
        for steps in (self.encoder_steps, self.decoder_steps):
            if steps.halting is not None:
                nn.init.ones_(steps.halting.linear.bias)  # few steps at first; training adds steps where they help

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) of each next target token, with teacher forcing.

        `source` (B, S) and `target` (B, T) are ids; masks have their shapes, True = a real token.
        """
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def hidden_states_and_ponder(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the hidden states (B, T, D), and the ponder cost of both sides, summed over the real positions."""
        encoded = self._encode(source, source_mask)
        decoded = self._decode(target, _memory(encoded, source_mask))
        return decoded.states, encoded.ponder(source_mask) + decoded.ponder(target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        """Read source ids (B, S) once, for any number of calls of `decode`."""
        return _memory(self._encode(source, source_mask), source_mask)

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
        return self._decode(target, memory, cache).states

    def _encode(self, source: Tensor, source_mask: Tensor | None) -> ActOutput:
        positions = torch.arange(source.size(1), device=source.device)
        mask = None if source_mask is None else padding_mask(source_mask)
        output: ActOutput = self.encoder_steps(
            self.dropout(self.source_embedding(source)), positions, lambda x, step: self.encoder_layer(x, mask=mask)
        )
        return output

    def _decode(self, target: Tensor, memory: Memory, cache: Cache | None = None) -> ActOutput:
        n_past, n_new = 0 if cache is None else cache.length, target.size(1)
        positions = torch.arange(n_past, n_past + n_new, device=target.device)
        mask = causal_mask(n_new, n_past + n_new, device=target.device) if n_new > 1 else None

        def layer_fn(x: Tensor, step: int) -> Tensor:
            past = None if cache is None else cache.layers[step]
            after: Tensor = self.decoder_layer(x, memory.states[0], mask=mask, memory_mask=memory.mask, cache=past)
            return after

        embedded = self.dropout(self.target_embedding(target))
        output: ActOutput = self.decoder_steps(embedded, positions, layer_fn, all_steps=cache is not None)
        return output

    def make_cache(self) -> Cache:
        return Cache(self.decoder_steps.n_steps)

    @property
    def max_length(self) -> None:
        """Sinusoidal positions have no limit."""
        return

    def tie(self) -> None:
        """Share the target embedding's weight with the output layer; again after loading, which replaces weights."""
        if self.config.tied != "none":
            self.head.share(self.target_embedding.table)


def _memory(output: ActOutput, source_mask: Tensor | None) -> Memory:
    return Memory([output.states], None if source_mask is None else padding_mask(source_mask))


def _halting(config: UniversalConfig) -> Halting | None:
    return Halting(d_model=config.d_model, threshold=config.threshold) if config.halting == "adaptive" else None


def _encoder_layer(config: UniversalConfig) -> EncoderLayer:
    return EncoderLayer(
        attention=_attention(config),
        feed_forward=_feed_forward(config),
        attention_residual=_residual(config),
        feed_forward_residual=_residual(config),
    )


def _decoder_layer(config: UniversalConfig) -> DecoderLayer:
    return DecoderLayer(
        attention=_attention(config),
        cross_attention=_attention(config),
        feed_forward=_feed_forward(config),
        attention_residual=_residual(config),
        cross_attention_residual=_residual(config),
        feed_forward_residual=_residual(config),
    )


def _attention(config: UniversalConfig) -> MultiHeadAttention:
    return MultiHeadAttention(d_model=config.d_model, n_heads=config.n_heads, dropout=config.attention_dropout)


def _feed_forward(config: UniversalConfig) -> nn.Module:
    network, activation = FEED_FORWARDS[config.activation]
    return network(d_model=config.d_model, d_ff=config.d_ff, activation=activation, dropout=config.dropout)


def _residual(config: UniversalConfig) -> nn.Module:
    return PostNorm(LayerNorm(config.d_model), config.dropout)
