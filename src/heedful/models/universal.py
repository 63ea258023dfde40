"""The Universal Transformer (Dehghani et al. 2018): depth is time. One layer, as often as each position needs it.

source ids ── embed ── (+ position, + step ── encoder layer) × up to n_steps ── Memory ──┐
target ids ── embed ── (+ position, + step ── decoder layer) × up to n_steps ────────────┴── VocabularyHead ── logits

What differs: encoder and decoder have one layer each, whose weights serve every step; before each step the code of the
position and of the step is added. With adaptive halting a position stops when it is sure enough, and thinking costs.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_shares, check_sizes
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
from heedful.text import SpecialIds

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "source_vocab_size": 10**8,
    "target_vocab_size": 10**8,
    "d_model": 10**6,
    "n_steps": 1_000,
    "n_decoder_steps": 1_000,
    "n_heads": 10**4,
    "d_ff": 10**7,
    "max_len": 10**9,
}


@dataclass(frozen=True)
class UniversalConfig:
    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    n_steps: int = 6  # of the encoder: how often its layer is applied, at most
    n_decoder_steps: int | None = None  # as many as n_steps
    n_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = "relu"
    halting: Literal["adaptive", "none"] = "adaptive"
    threshold: float = 0.99  # a position stops when its probabilities of stopping add up to more
    ponder_weight: float = 0.01  # what a step costs, beside the loss of a token
    max_len: int = 1024  # the length that training stays below
    tied: Literal["all", "target", "none"] = "all"  # one matrix three times; target and output; three matrices
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout", "attention_dropout")
        if not 0.0 < self.threshold < 1.0:
            raise UserError(f"'threshold' must lie between 0 and 1, found {self.threshold}")
        if not 0.0 <= self.ponder_weight <= 100.0:
            raise UserError(f"'ponder_weight' must lie between 0 and 100, found {self.ponder_weight}")
        if self.tied == "all" and self.source_vocab_size != self.target_vocab_size:
            raise UserError(
                f"tied = 'all' needs one vocabulary for both sides, found {self.source_vocab_size} and "
                f"{self.target_vocab_size}: learn a joint tokenizer, or set tied = 'target'"
            )
        if self.d_model % self.n_heads or self.d_model % 2:
            raise UserError(f"d_model = {self.d_model} must be even, and a multiple of n_heads = {self.n_heads}")
        self.special_ids.check(min(self.source_vocab_size, self.target_vocab_size))


class Universal(nn.Module):
    """Source ids and the target so far in, logits of the next target token out, for all positions at once."""

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
                nn.init.ones_(
                    steps.halting.linear.bias
                )  # at first few steps: thinking longer is learned where it helps

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Teacher forcing: (B, S), (B, T), masks of the same shapes, True = a real token -> logits (B, T, V)."""
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def hidden_states_and_ponder(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`states`, and what both sides cost: steps and remainders, summed over the real positions."""
        read = self._read(source, source_mask)
        written = self._write(target, _memory(read, source_mask))
        return written.states, read.ponder(source_mask) + written.ponder(target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        return _memory(self._read(source, source_mask), source_mask)

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
        return self._write(target, memory, cache).states

    def _read(self, source: Tensor, source_mask: Tensor | None) -> ActOutput:
        positions = torch.arange(source.size(1), device=source.device)
        mask = None if source_mask is None else padding_mask(source_mask)
        thought: ActOutput = self.encoder_steps(
            self.dropout(self.source_embedding(source)), positions, lambda x, step: self.encoder_layer(x, mask=mask)
        )
        return thought

    def _write(self, target: Tensor, memory: Memory, cache: Cache | None = None) -> ActOutput:
        n_past, n_new = 0 if cache is None else cache.length, target.size(1)
        positions = torch.arange(n_past, n_past + n_new, device=target.device)
        mask = causal_mask(n_new, n_past + n_new, device=target.device) if n_new > 1 else None

        def apply(x: Tensor, step: int) -> Tensor:
            past = None if cache is None else cache.layers[step]
            after: Tensor = self.decoder_layer(x, memory.states[0], mask=mask, memory_mask=memory.mask, cache=past)
            return after

        embedded = self.dropout(self.target_embedding(target))
        thought: ActOutput = self.decoder_steps(embedded, positions, apply, all_steps=cache is not None)
        return thought

    def make_cache(self) -> Cache:
        return Cache(self.decoder_steps.n_steps)

    @property
    def max_length(self) -> None:
        """Sinusoidal positions know no last one."""
        return

    def tie(self) -> None:
        """Let the output layer use the target embedding's own numbers; again after loading, which replaces them."""
        if self.config.tied != "none":
            self.head.share(self.target_embedding.table)


def _memory(thought: ActOutput, source_mask: Tensor | None) -> Memory:
    return Memory([thought.states], None if source_mask is None else padding_mask(source_mask))


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
