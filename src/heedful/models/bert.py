"""BERT: the encoder alone, reading to both sides of every word (Devlin et al. 2019).

ids ── embed, + segments, + positions, norm ── Encoder (post-norm) ── states ── head ── logits
                                                                              hidden words · a label · labels of words
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_labels, check_positions, check_shares, check_sizes
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS, FeedForward
from heedful.nn.heads import Classifier, MaskedHead, Pooler, TokenClassifier
from heedful.nn.init import bert as bert_init
from heedful.nn.layers import EncoderLayer, PostNorm
from heedful.nn.masks import padding_mask
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Learned
from heedful.nn.stacks import Encoder, LastLayer
from heedful.text import SpecialIds

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "vocab_size": 10**8,
    "d_model": 10**6,
    "n_layers": 1_000,
    "n_heads": 10**4,
    "d_ff": 10**7,
    "max_len": 10**7,
    "n_segments": 10**4,
}


@dataclass(frozen=True)
class BertConfig:
    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None  # as `dropout`
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    norm_eps: float = 1e-12
    max_len: int = 512  # the last row of the table of positions
    n_segments: int = 2  # rows of the table that tells a text from the one after it
    head: Literal["masked", "classify", "tag", "pool", "none"] = "masked"
    labels: tuple[str, ...] = ()  # of "classify" and "tag", in the order of their numbers
    multi_label: bool = False  # several labels may be right at once: a sigmoid for each, instead of one softmax
    tied: bool = True  # of "masked": the embedding's own numbers write words
    pooler: bool = False  # of "masked": that of pre-training is kept beside it; "classify" and "pool" always have one
    special_ids: SpecialIds = field(default_factory=SpecialIds)  # a text is bos ([CLS]) ids eos ([SEP])

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout", "attention_dropout", "classifier_dropout")
        if not 0.0 < self.norm_eps < 1.0:
            raise UserError(f"'norm_eps' must lie between 0 and 1, found {self.norm_eps}")
        if self.d_model % self.n_heads:
            raise UserError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}")
        check_labels(self.head, self.labels, needed_by=("classify", "tag"), multi_label=self.multi_label)
        if self.pooler and self.head != "masked":
            raise UserError(f"pooler = true: is for head = 'masked'; head = '{self.head}' has one where it needs one")
        self.special_ids.check(self.vocab_size)

    @property
    def n_labels(self) -> int:
        return len(self.labels)


class Bert(nn.Module):
    """Ids in, logits out: of the whole vocabulary, of labels for the text, or of labels for each token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(vocab_size=config.vocab_size, d_model=config.d_model, scale=1.0)
        self.segments = nn.Embedding(config.n_segments, config.d_model)
        self.positions = Learned(max_len=config.max_len, d_model=config.d_model)
        self.norm = LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(layers=[_layer(config) for _ in range(config.n_layers)], join=LastLayer())
        self.head = _head(config)
        self.tie()
        bert_init(self)

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """(B, S), mask (B, S) with True = a real token -> logits; of which shape, the head says.

        masked: (B, S, V) · classify: (B, L) · tag: (B, S, L) · pool: features (B, D) · none: states (B, S, D)
        """
        logits: Tensor = self.head(self.hidden_states(ids, mask, segments))
        return logits

    def hidden_states(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """The last vectors (B, S, D). Without `segments` all tokens belong to segment 0."""
        self.check_length(ids.size(1))
        positions = torch.arange(ids.size(1), device=ids.device)
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        x = self.dropout(self.norm(self.positions(self.embedding(ids) + segment, positions)))
        memories: list[Tensor] = self.encoder(
            x, positions=positions, mask=None if mask is None else padding_mask(mask), real=mask
        )
        return memories[-1]

    def tie(self) -> None:
        """Let the head write words with the embedding's own numbers; again after loading, which replaces them."""
        if isinstance(self.head, MaskedHead) and self.config.tied:
            self.head.share(self.embedding.table)

    def check_length(self, length: int) -> None:
        """Refuse more tokens than there are positions."""
        check_positions(length, self.config.max_len)


def _layer(config: BertConfig) -> EncoderLayer:
    network, activation = FEED_FORWARDS[config.activation]
    assert network is FeedForward
    return EncoderLayer(
        attention=MultiHeadAttention(d_model=config.d_model, n_heads=config.n_heads, dropout=config.attention_dropout),
        feed_forward=FeedForward(d_model=config.d_model, d_ff=config.d_ff, activation=activation),
        attention_residual=PostNorm(LayerNorm(config.d_model, eps=config.norm_eps), config.dropout),
        feed_forward_residual=PostNorm(LayerNorm(config.d_model, eps=config.norm_eps), config.dropout),
    )


def _head(config: BertConfig) -> nn.Module:
    d_model = config.d_model
    dropout = config.dropout if config.classifier_dropout is None else config.classifier_dropout
    if config.head == "masked":
        activation = FEED_FORWARDS[config.activation][1]
        return MaskedHead(
            d_model=d_model,
            vocab_size=config.vocab_size,
            activation=activation,
            eps=config.norm_eps,
            pooler=Pooler(d_model=d_model) if config.pooler else None,
        )
    if config.head == "classify":
        return Classifier(d_model=d_model, n_labels=config.n_labels, dropout=dropout, pooler=Pooler(d_model=d_model))
    if config.head == "tag":
        return TokenClassifier(d_model=d_model, n_labels=config.n_labels, dropout=dropout)
    return Pooler(d_model=d_model) if config.head == "pool" else nn.Identity()
