"""Decoder-only Transformers: GPT-2 (Radford et al. 2019) and, with other parts, Llama (Touvron et al. 2023).

ids ── embed, + learned positions (or rotary ones in every attention) ── N x [attention, feed-forward] ── norm ── logits

Each token attends to itself and to the tokens before it.
"""

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.configs import GptConfig, RotaryConfig
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

__all__ = ["Gpt", "GptConfig", "RotaryConfig", "document_positions"]


class Gpt(nn.Module):
    """A language model: ids in, logits of each next token out.

    >>> import torch
    >>> model = Gpt(GptConfig(vocab_size=100, d_model=32, n_layers=2, n_heads=4, d_ff=64))
    >>> model(torch.randint(100, (2, 7))).shape
    torch.Size([2, 7, 100])
    """

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
        """Return the logits (B, T, V) of the token after each of `ids` (B, T).

        `mask` (B, T), True = a real token. Padding on the right needs no mask. `documents`: see `hidden_states`.
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
        """Return the last hidden states (B, T, D), the input of the output layer.

        `documents` (B, T) has the number of each token's document, for rows of packed documents: tokens attend only to
        their own document, whose positions begin at 0. With a cache, `ids` are only the new tokens, and `mask`
        (B, past + T) covers all tokens. The output of each layer (B, T, D) is appended to the list `layers`.
        """
        n_past = 0 if cache is None else cache.length
        if documents is not None:
            if cache is not None or mask is not None:
                raise ValueError("rows of packed documents take neither a mask nor a cache")
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
        """Share the embedding's weight with the output layer; again after loading, which replaces weights."""
        if self.config.tied:
            self.head.share(self.embedding.table)

    def _check_length(self, positions: Tensor, n_past: int) -> None:
        """Raise a UserError for more tokens than there are learned positions."""
        if self.config.has_learned_positions and positions.numel():
            # For positions (T,) the shape is enough, so that the model can be exported as a graph.
            length = n_past + len(positions) if positions.dim() == 1 else int(positions.max()) + 1
            if length > self.config.max_len:
                raise UserError(
                    f"the text has {length} tokens, but this model has learned only {self.config.max_len} positions; "
                    "shorten the text, or train with a larger model.max_len"
                )


def document_positions(documents: Tensor) -> Tensor:
    """Count the positions 0, 1, 2, … within each document: (B, T) -> (B, T)."""
    columns = torch.arange(documents.size(1), device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return columns - torch.where(begins, columns, 0).cummax(dim=1).values


def _real_or_self(mask: Tensor, n_past: int) -> Tensor:
    """Hide padding from all tokens but itself, so that no row of the softmax is empty: (B, S) -> (B, 1, T, S)."""
    itself = torch.eye(mask.size(1), dtype=torch.bool, device=mask.device)[n_past:]
    return padding_mask(mask) | itself


def _layer(config: GptConfig, number: int) -> EncoderLayer:
    def residual() -> PreNorm:
        return PreNorm(NORMS[config.norm](config.d_model, eps=config.norm_eps), config.dropout)

    rotary = None
    if config.positions == "rotary":
        rotary = Rotary(d_head=config.head_width, base=config.rotary.base, scaling=_rope_scaling(config.rotary))
    network, activation = FEED_FORWARDS[config.activation]
    return EncoderLayer(
        attention=MultiHeadAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            d_head=config.head_width,
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


def _rope_scaling(rotary: RotaryConfig) -> RopeScaling | None:
    if not rotary.is_scaled:
        return None
    return RopeScaling(
        factor=rotary.factor,
        original_max_len=rotary.original_max_len,
        low_freq_factor=rotary.low_freq_factor,
        high_freq_factor=rotary.high_freq_factor,
    )


def _score_scale(config: GptConfig, number: int) -> float | None:
    """Return the factor of q . k. Layers are counted from 1, as in Stanford's Mistral GPT-2 models (2021)."""
    if config.score_scale == "head":
        return None  # the default of attention
    by_head = config.head_width**-0.5 if config.score_scale == "head_and_layer" else 1.0
    return by_head if config.score_scale == "none" else by_head / (number + 1)
