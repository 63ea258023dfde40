"""The Transformer of 2017 (Vaswani et al.), with the parts that were tried in it since.

source ids ── embed, + positions ── Encoder ── Memory ──┐
target ids ── embed, + positions ── Decoder ────────────┴── VocabularyHead ── logits
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.models.config_checks import check_positions
from heedful.models.configs import PatternConfig, Seq2SeqConfig
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

__all__ = ["PatternConfig", "Seq2Seq", "Seq2SeqConfig"]


class Seq2Seq(nn.Module):
    """An encoder-decoder. Its parts are chosen by `Seq2SeqConfig`.

    >>> import torch
    >>> model = Seq2Seq(Seq2SeqConfig(100, 100, d_model=32, n_layers=2, n_heads=4, d_ff=64))
    >>> source, target = torch.randint(4, 100, (2, 7)), torch.randint(4, 100, (2, 5))
    >>> model(source, target).shape
    torch.Size([2, 5, 100])
    """

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
        # Sparse patterns and top-k attention hide future tokens themselves; other kinds need a causal mask.
        self.needs_causal_mask = config.pattern.kind in ("full", "additive")
        INITS[config.init](self)

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) of each next target token, with teacher forcing.

        `source` (B, S) and `target` (B, T) are ids; masks have their shapes, True = a real token. logits[:, t] predicts
        target[:, t + 1]. Padding on the right of the target needs no mask, unless norm = "batch".
        """
        return self.decode(target, self.encode(source, source_mask), target_mask=target_mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory:
        """Read source ids (B, S) once, for any number of calls of `decode`."""
        self.check_length(source.size(1))
        positions = torch.arange(source.size(1), device=source.device)
        x = self.dropout(self.source_positions(self.source_embedding(source), positions))
        mask = None if source_mask is None else padding_mask(source_mask)
        return Memory(self.encoder(x, positions=positions, mask=mask, real=source_mask), mask)

    def decode(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) after each target token. With a cache, `target` holds only the new tokens."""
        logits: Tensor = self.head(self.hidden_states(target, memory, target_mask=target_mask, cache=cache))
        return logits

    def hidden_states(
        self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the decoder's last hidden states (B, T, D), the input of the output layer.

        `target_mask` matters only to norm = "batch".
        """
        n_past = 0 if cache is None else cache.length
        n_new = target.size(1)
        self.check_length(n_past + n_new)
        positions = torch.arange(n_past, n_past + n_new, device=target.device)
        x = self.dropout(self.target_positions(self.target_embedding(target), positions))
        mask = None
        if self.needs_causal_mask and n_new > 1:  # a single new token may attend to the whole cache
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
        """The longest text on either side; None: only learned positions have a limit."""
        return self.config.max_len if self.config.has_learned_positions else None

    def tie(self) -> None:
        """Share the target embedding's weight with the output layer; again after loading, which replaces weights."""
        if self.config.tied != "none":
            self.head.share(self.target_embedding.table)

    def check_length(self, length: int) -> None:
        """Raise a UserError for more tokens than there are learned positions."""
        if self.max_length is not None:
            check_positions(length, self.max_length)


class _Parts:
    """Builds the parts that a config chooses."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        self.config = config
        self.d_head = config.head_width
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
            scale=1.0 if self.config.init == "t5" else None,  # T5's initial weights make the division unnecessary
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
