"""The Transformer of 2017, encoder and decoder, with the parts that have been tried in it since.

source ids ── embed, + positions ── Encoder ── Memory ──┐
target ids ── embed, + positions ── Decoder ────────────┴── VocabularyHead ── logits
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_positions, check_shares, check_sizes
from heedful.nn.attention import AdditiveAttend, Attend, MultiHeadAttention, attend_fused
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import INITS
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import RESIDUALS, DecoderLayer, EncoderLayer
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import NORMS
from heedful.nn.positions import Alibi, Learned, NoPositions, RelativeBias, Rotary, Sinusoidal
from heedful.nn.sparse_attention import PATTERNS, PatternAttention, Sparse, TopKAttention
from heedful.nn.stacks import Decoder, Encoder, LastLayer, LearnedMix, MatchingLayer, Memory
from heedful.text import SpecialIds

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "source_vocab_size": 10**8,
    "target_vocab_size": 10**8,
    "d_model": 10**6,
    "n_layers": 1_000,
    "n_decoder_layers": 1_000,
    "n_heads": 10**4,
    "n_kv_heads": 10**4,
    "d_head": 10**6,
    "d_ff": 10**7,
    "max_len": 10**9,
}


@dataclass(frozen=True)
class PatternConfig:
    """Which keys a self-attention reads. Cross-attention always reads the whole memory."""

    kind: Literal["full", "additive", "local", "window", "strided", "dilated", "sparse", "top_k"] = "full"
    span: int = 64  # neighbours, width of a window, stride, number of gaps, width of a block, keys kept
    n_global: int = 1  # of "sparse": how many first positions see all and are seen by all

    def __post_init__(self) -> None:
        if not 1 <= self.span <= LARGEST["max_len"]:
            raise UserError(f"'span' must lie between 1 and {LARGEST['max_len']:,}, found {self.span}")
        if not 0 <= self.n_global <= LARGEST["max_len"]:
            raise UserError(f"'n_global' must lie between 0 and {LARGEST['max_len']:,}, found {self.n_global}")


@dataclass(frozen=True)
class Seq2SeqConfig:
    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    n_layers: int = 6
    n_decoder_layers: int | None = None  # as many as n_layers
    n_heads: int = 8
    n_kv_heads: int | None = None  # as many as n_heads
    d_head: int | None = None  # d_model / n_heads
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = "relu"
    norm: Literal["layer", "rms", "batch"] = "layer"
    residual: Literal["pre", "post", "none"] = "post"
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary", "relative", "alibi", "none"] = (
        "sinusoidal"
    )
    max_len: int = 1024  # the last row of a learned table; elsewhere the length that training stays below
    pattern: PatternConfig = field(default_factory=PatternConfig)
    join: Literal["last", "matching", "mix"] = "last"  # what the decoder layers read of the encoder's
    tied: Literal["all", "target", "none"] = "all"  # one matrix three times; target and output; three matrices
    init: Literal["xavier", "t5", "gpt2"] = "xavier"
    logits_bias: bool = False  # a number added to the logit of each word, as Marian's models have it
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout", "attention_dropout")
        if self.tied == "all" and self.source_vocab_size != self.target_vocab_size:
            raise UserError(
                f"tied = 'all' needs one vocabulary for both sides, found {self.source_vocab_size} and "
                f"{self.target_vocab_size}: learn a joint tokenizer, or set tied = 'target'"
            )
        if self.d_head is None and self.d_model % self.n_heads:
            raise UserError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}; set d_head as well")
        if self.n_heads % (self.n_kv_heads or self.n_heads):
            raise UserError(f"n_kv_heads = {self.n_kv_heads} does not divide n_heads = {self.n_heads}")
        if self.positions in ("relative", "alibi") and self.pattern.kind in PATTERNS:
            raise UserError(
                f"positions = '{self.positions}' adds a bias to every pair of tokens, and pattern "
                f"'{self.pattern.kind}' does not compute every pair; use sinusoidal, learned, rotary or none"
            )
        if self.positions == "rotary" and (self.d_head or self.d_model // self.n_heads) % 2:
            raise UserError("positions = 'rotary' turns pairs of numbers: d_head must be even")
        if self.positions in ("sinusoidal", "sinusoidal_halves") and self.d_model % 2:
            raise UserError(f"positions = '{self.positions}' come in pairs: d_model = {self.d_model} must be even")
        self.special_ids.check(min(self.source_vocab_size, self.target_vocab_size))


class Seq2Seq(nn.Module):
    """Source ids and the target so far in, logits of the next target token out, for all positions at once."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        build = _Parts(config)
        self.source_embedding = TokenEmbedding(vocab_size=config.source_vocab_size, d_model=config.d_model)
        if config.tied == "all":
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = TokenEmbedding(vocab_size=config.target_vocab_size, d_model=config.d_model)
        self.source_positions = build.added_positions()
        self.target_positions = build.added_positions()
        self.dropout = Dropout(config.dropout)
        self.encoder = build.encoder()
        self.decoder = build.decoder()
        self.head = VocabularyHead(
            d_model=config.d_model,
            vocab_size=config.target_vocab_size,
            bias=config.logits_bias,
        )
        self.tie()
        # A rule hides the future by itself; otherwise the decoder's mask does.
        self.needs_causal_mask = config.pattern.kind not in PATTERNS and config.pattern.kind != "top_k"
        INITS[config.init](self)

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Teacher forcing: (B, S), (B, T), masks of the same shapes, True = a real token -> logits (B, T, V).

        Row t of the logits is the prediction of what follows target[:, t]. Padding on the right of the target needs
        no mask, since no real position looks ahead, unless the norm mixes tokens (batch).
        """
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        self.check_length(source.size(1))
        positions = torch.arange(source.size(1), device=source.device)
        x = self.dropout(self.source_positions(self.source_embedding(source), positions))
        mask = None if source_mask is None else padding_mask(source_mask)
        return Memory(self.encoder(x, positions=positions, mask=mask, real=source_mask), mask)

    def decode(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Logits (B, T, V) of what follows each target token. With a cache, `target` holds only the new tokens."""
        logits: Tensor = self.head(self.hidden_states(target, memory, target_mask=target_mask, cache=cache))
        return logits

    def hidden_states(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The decoder's last vectors (B, T, D): what the head turns into logits.

        `target_mask` matters only to norms that mix tokens (batch).
        """
        n_past = 0 if cache is None else cache.length
        n_new = target.size(1)
        self.check_length(n_past + n_new)
        positions = torch.arange(n_past, n_past + n_new, device=target.device)
        x = self.dropout(self.target_positions(self.target_embedding(target), positions))
        mask = None
        if self.needs_causal_mask and n_new > 1:  # one new token may look at all that is in the cache
            mask = causal_mask(n_new, n_past + n_new, device=target.device)
        states: Tensor = self.decoder(
            x,
            memory.states,
            positions=positions,
            mask=mask,
            memory_mask=memory.mask,
            real=target_mask,
            cache=cache,
        )
        return states

    def make_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))

    @property
    def max_length(self) -> int | None:
        """The most tokens that either side takes: learned positions end with their table, all others go on."""
        return self.config.max_len if self.config.positions == "learned" else None

    def tie(self) -> None:
        """Let the output layer use the target embedding's own numbers; again after loading, which replaces them."""
        if self.config.tied != "none":
            self.head.share(self.target_embedding.table)

    def check_length(self, length: int) -> None:
        """Refuse more tokens than there are learned positions."""
        if self.max_length is not None:
            check_positions(length, self.max_length)


class _Parts:
    """Builds the parts that a config names."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        self.config = config
        self.d_head = config.d_head or config.d_model // config.n_heads
        self.n_decoder_layers = config.n_decoder_layers or config.n_layers

    def encoder(self) -> Encoder:
        depths = {"n_encoder_layers": self.config.n_layers, "n_decoder_layers": self.n_decoder_layers}
        joins: dict[str, Callable[[], nn.Module]] = {
            "last": LastLayer,
            "matching": lambda: MatchingLayer(**depths),
            "mix": lambda: LearnedMix(**depths),
        }
        return Encoder(
            layers=[
                EncoderLayer(
                    attention=self.self_attention(causal=False),
                    feed_forward=self.feed_forward(),
                    attention_residual=self.residual(),
                    feed_forward_residual=self.residual(),
                )
                for _ in range(self.config.n_layers)
            ],
            join=joins[self.config.join](),
            final_norm=self.final_norm(),
            bias=self.bias(bidirectional=True),
        )

    def decoder(self) -> Decoder:
        return Decoder(
            layers=[
                DecoderLayer(
                    attention=self.self_attention(causal=True),
                    cross_attention=self.attention(self.full_attend()),
                    feed_forward=self.feed_forward(),
                    attention_residual=self.residual(),
                    cross_attention_residual=self.residual(),
                    feed_forward_residual=self.residual(),
                )
                for _ in range(self.n_decoder_layers)
            ],
            final_norm=self.final_norm(),
            bias=self.bias(bidirectional=False),
        )

    def self_attention(self, *, causal: bool) -> MultiHeadAttention:
        pattern = self.config.pattern
        if pattern.kind == "sparse":
            attend: Attend = PatternAttention(Sparse(pattern.span, causal=causal, n_global=pattern.n_global))
        elif pattern.kind in PATTERNS:
            attend = PatternAttention(PATTERNS[pattern.kind](pattern.span, causal=causal))
        elif pattern.kind == "top_k":
            attend = TopKAttention(pattern.span, causal=causal)
        else:
            attend = self.full_attend()
        rotary = Rotary(d_head=self.d_head) if self.config.positions == "rotary" else None
        return self.attention(attend, rotary)

    def full_attend(self) -> Attend:
        if self.config.pattern.kind == "additive":
            return AdditiveAttend(n_heads=self.config.n_heads, d_head=self.d_head)
        return attend_fused

    def attention(self, attend: Attend, rotary: Rotary | None = None) -> MultiHeadAttention:
        return MultiHeadAttention(
            d_model=self.config.d_model,
            n_heads=self.config.n_heads,
            n_kv_heads=self.config.n_kv_heads,
            d_head=self.d_head,
            dropout=self.config.attention_dropout,
            scale=1.0 if self.config.init == "t5" else None,  # T5's start makes the division unnecessary
            attend=attend,
            rotary=rotary,
        )

    def feed_forward(self) -> nn.Module:
        network, activation = FEED_FORWARDS[self.config.activation]
        return network(d_model=self.config.d_model, d_ff=self.config.d_ff, activation=activation)

    def residual(self) -> nn.Module:
        return RESIDUALS[self.config.residual](NORMS[self.config.norm](self.config.d_model), self.config.dropout)

    def final_norm(self) -> nn.Module | None:
        return NORMS[self.config.norm](self.config.d_model) if self.config.residual == "pre" else None

    def added_positions(self) -> nn.Module:
        kinds: dict[str, Callable[[], nn.Module]] = {
            "sinusoidal": Sinusoidal,
            "sinusoidal_halves": lambda: Sinusoidal(layout="halves"),
            "learned": lambda: Learned(max_len=self.config.max_len, d_model=self.config.d_model),
        }
        return kinds.get(self.config.positions, NoPositions)()

    def bias(self, *, bidirectional: bool) -> nn.Module | None:
        if self.config.positions == "relative":
            return RelativeBias(n_heads=self.config.n_heads, bidirectional=bidirectional)
        return Alibi(n_heads=self.config.n_heads) if self.config.positions == "alibi" else None
