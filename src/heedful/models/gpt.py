"""Decoder-only Transformers: GPT-2's shape and, with other parts, Llama's. A text in, what follows each token out.

ids ── embed, + learned positions (or rotary ones in every attention) ── N x [attention, feed-forward] ── norm ── logits

Every token looks at itself and at what stands before it; that is all that makes it a language model.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_shares, check_sizes
from heedful.nn.attention import MultiHeadAttention, attend_causal
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.heads import VocabularyHead
from heedful.nn.init import gpt2
from heedful.nn.kv_cache import Cache
from heedful.nn.layers import EncoderLayer, PreNorm
from heedful.nn.masks import document_mask, padding_mask
from heedful.nn.norms import NORMS
from heedful.nn.positions import Learned, NoPositions, RopeScaling, Rotary
from heedful.text import SpecialIds

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "vocab_size": 10**8,
    "d_model": 10**6,
    "n_layers": 1_000,
    "n_heads": 10**4,
    "n_kv_heads": 10**4,
    "d_head": 10**6,
    "d_ff": 10**7,
    "max_len": 10**9,
}


@dataclass(frozen=True)
class RotaryConfig:
    """The wavelengths of rotary positions; `factor` and what follows it are RopeScaling's."""

    base: float = 10_000.0
    factor: float = 1.0
    original_max_len: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        for name in ("base", "factor"):
            if not 1.0 <= getattr(self, name) <= 1e12:
                raise UserError(f"'{name}' must lie between 1 and 1e12, found {getattr(self, name)}")
        largest = LARGEST["max_len"]
        if self.original_max_len is not None and not 1 <= self.original_max_len <= largest:
            raise UserError(f"'original_max_len' must lie between 1 and {largest:,}, found {self.original_max_len}")
        if not 0.0 < self.low_freq_factor < self.high_freq_factor <= 1e12:
            raise UserError(
                "'low_freq_factor' must lie between 0 and 'high_freq_factor', found "
                f"{self.low_freq_factor} and {self.high_freq_factor}"
            )

    @property
    def scaling(self) -> RopeScaling | None:
        if self.factor == 1.0:
            return None
        return RopeScaling(
            factor=self.factor,
            original_max_len=self.original_max_len,
            low_freq_factor=self.low_freq_factor,
            high_freq_factor=self.high_freq_factor,
        )


@dataclass(frozen=True)
class GptConfig:
    """The defaults are GPT-2's; its smallest model is GptConfig(vocab_size=50257)."""

    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    n_kv_heads: int | None = None  # as many as n_heads
    d_head: int | None = None  # d_model / n_heads
    d_ff: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = "gelu_tanh"
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    positions: Literal["learned", "rotary", "none"] = "learned"
    rotary: RotaryConfig = field(default_factory=RotaryConfig)
    max_len: int = 1024  # the last row of a learned table; elsewhere the length that training stays below
    attention_bias: bool = True
    feed_forward_bias: bool = True
    score_scale: Literal["head", "layer", "head_and_layer", "none"] = (
        "head"  # divided by sqrt(K), by the layer's number
    )
    tied: bool = True  # the output layer is the embedding
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout", "attention_dropout")
        if not 0.0 <= self.norm_eps <= 1.0:
            raise UserError(f"'norm_eps' must lie between 0 and 1, found {self.norm_eps}")
        if self.d_head is None and self.d_model % self.n_heads:
            raise UserError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}; set d_head as well")
        if self.n_heads % (self.n_kv_heads or self.n_heads):
            raise UserError(f"n_kv_heads = {self.n_kv_heads} does not divide n_heads = {self.n_heads}")
        if self.positions == "rotary" and self.width_of_head % 2:
            raise UserError("positions = 'rotary' turns pairs of numbers: d_head must be even")

    @property
    def width_of_head(self) -> int:
        return self.d_head or self.d_model // self.n_heads


class Gpt(nn.Module):
    """Ids in, logits of the next token out, for all positions at once."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(vocab_size=config.vocab_size, d_model=config.d_model, scale=1.0)
        learned = config.positions == "learned"
        self.positions = Learned(max_len=config.max_len, d_model=config.d_model) if learned else NoPositions()
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(_layer(config, number) for number in range(config.n_layers))
        self.final_norm = NORMS[config.norm](config.d_model, eps=config.norm_eps)
        self.head = VocabularyHead(d_model=config.d_model, vocab_size=config.vocab_size)
        self.tie()
        gpt2(self)

    def forward(self, ids: Tensor, mask: Tensor | None = None, *, documents: Tensor | None = None) -> Tensor:
        """(B, T), a mask of the same shape, True = a real token -> logits (B, T, V).

        Row t is the prediction of what follows ids[:, t]. Padding may stand on either side; on the right it needs no
        mask, since no real position looks ahead. `documents` is as in `states`.
        """
        logits: Tensor = self.head(self.hidden_states(ids, mask, documents=documents))
        return logits

    def hidden_states(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        cache: Cache | None = None,
        layers: list[Tensor] | None = None,
    ) -> Tensor:
        """The last vectors (B, T, D): what the head turns into logits.

        `documents` (B, T) numbers the texts that are packed into a row: they do not see each other, and the positions
        of each begin at 0. With a cache `ids` are only the new tokens, and `mask` (B, past + T) covers all. To a list
        of `layers` what each of them leaves is added, (B, T, D), before the final norm.
        """
        n_past = 0 if cache is None else cache.length
        if documents is not None:
            if cache is not None or mask is not None:
                raise ValueError("packed rows have neither padding of their own nor a cache")
            positions, may_see = document_positions(documents), document_mask(documents)
        elif mask is not None and not bool(mask.all()):
            positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, n_past:]
            may_see = _real_or_self(mask, n_past)
        else:
            positions, may_see = torch.arange(n_past, n_past + ids.size(1), device=ids.device), None
        self._check_length(positions, n_past)
        x = self.dropout(self.positions(self.embedding(ids), positions))
        for number, layer in enumerate(self.layers):
            past = None if cache is None else cache.layers[number].past
            x = layer(x, mask=may_see, positions=positions, cache=past)
            if layers is not None:
                layers.append(x)
        states: Tensor = self.final_norm(x)
        return states

    def make_cache(self) -> Cache:
        return Cache(self.config.n_layers)

    def tie(self) -> None:
        """Let the output layer use the embedding's own numbers; again after loading, which replaces them."""
        if self.config.tied:
            self.head.share(self.embedding.table)

    def _check_length(self, positions: Tensor, n_past: int) -> None:
        """Refuse more tokens than there are learned positions."""
        if self.config.positions == "learned" and positions.numel():
            # Of plain positions the shape alone tells, so that a graph of the model can be drawn.
            length = n_past + len(positions) if positions.dim() == 1 else int(positions.max()) + 1
            if length > self.config.max_len:
                raise UserError(
                    f"{length} tokens are more than the {self.config.max_len} positions that this model has learned; "
                    "shorten the text, or train with a larger model.max_len"
                )


def document_positions(documents: Tensor) -> Tensor:
    """0, 1, 2, … within each run of one number: (B, T) -> (B, T)."""
    columns = torch.arange(documents.size(1), device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return columns - torch.where(begins, columns, 0).cummax(dim=1).values


def _real_or_self(mask: Tensor, n_past: int) -> Tensor:
    """(B, S) -> (B, 1, T, S): padding is seen by nobody but itself, so that no row of the softmax is empty."""
    itself = torch.eye(mask.size(1), dtype=torch.bool, device=mask.device)[n_past:]
    return padding_mask(mask) | itself


def _layer(config: GptConfig, number: int) -> EncoderLayer:
    def residual() -> PreNorm:
        return PreNorm(NORMS[config.norm](config.d_model, eps=config.norm_eps), config.dropout)

    rotary = None
    if config.positions == "rotary":
        rotary = Rotary(d_head=config.width_of_head, base=config.rotary.base, scaling=config.rotary.scaling)
    network, activation = FEED_FORWARDS[config.activation]
    return EncoderLayer(
        attention=MultiHeadAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            d_head=config.width_of_head,
            bias=config.attention_bias,
            dropout=config.attention_dropout,
            scale=_score_scale(config, number),
            attend=attend_causal,
            rotary=rotary,
        ),
        feed_forward=network(
            d_model=config.d_model, d_ff=config.d_ff, activation=activation, bias=config.feed_forward_bias
        ),
        attention_residual=residual(),
        feed_forward_residual=residual(),
    )


def _score_scale(config: GptConfig, number: int) -> float | None:
    """What q . k is multiplied by; layers are counted from 1, as in Mistral's GPT-2 models (2021)."""
    if config.score_scale == "head":
        return None  # attention's own
    by_head = config.width_of_head**-0.5 if config.score_scale == "head_and_layer" else 1.0
    return by_head if config.score_scale == "none" else by_head / (number + 1)
