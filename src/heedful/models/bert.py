"""BERT (Devlin et al. 2019): an encoder in which every token attends to both sides.

ids ── embed, + segments, + positions, norm ── Encoder (post-norm) ── states ── head ── logits
                                                                              masked words · a label · tags of tokens
"""

import torch
from torch import Tensor, nn

from heedful.models.config_checks import check_positions
from heedful.models.configs import BertConfig
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FEED_FORWARDS, FeedForward
from heedful.nn.heads import ClassificationHead, MaskedHead, Pooler, TokenClassifier
from heedful.nn.init import bert as bert_init
from heedful.nn.layers import EncoderLayer, PostNorm
from heedful.nn.masks import padding_mask
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Learned
from heedful.nn.stacks import Encoder, LastLayer

__all__ = ["Bert", "BertConfig"]


class Bert(nn.Module):
    """An encoder with a head: ids in, logits of masked words, of labels, or of a tag for each token out.

    >>> import torch
    >>> config = BertConfig(100, d_model=32, n_layers=2, n_heads=4, d_ff=64, head="classify", labels=("good", "bad"))
    >>> Bert(config)(torch.randint(100, (3, 7))).shape
    torch.Size([3, 2])
    """

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
        """Return the output of the head for `ids` (B, S); `mask` (B, S), True = a real token.

        By head: masked (B, S, V) · classify (B, L) · tag (B, S, L) · pool: features (B, D) · none: states (B, S, D)
        """
        logits: Tensor = self.head(self.hidden_states(ids, mask, segments))
        return logits

    def hidden_states(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the last hidden states (B, S, D). Without `segments` (B, S), all tokens belong to segment 0."""
        self.check_length(ids.size(1))
        positions = torch.arange(ids.size(1), device=ids.device)
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        x = self.dropout(self.norm(self.positions(self.embedding(ids) + segment, positions)))
        memories: list[Tensor] = self.encoder(
            x, positions=positions, mask=None if mask is None else padding_mask(mask), real=mask
        )
        return memories[-1]

    def tie(self) -> None:
        """Share the embedding's weight with the output layer; again after loading, which replaces weights."""
        if isinstance(self.head, MaskedHead) and self.config.tied:
            self.head.share(self.embedding.table)

    def check_length(self, length: int) -> None:
        """Raise a UserError for more tokens than there are positions."""
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
        return ClassificationHead(
            d_model=d_model, n_labels=config.n_labels, dropout=dropout, pooler=Pooler(d_model=d_model)
        )
    if config.head == "tag":
        return TokenClassifier(d_model=d_model, n_labels=config.n_labels, dropout=dropout)
    return Pooler(d_model=d_model) if config.head == "pool" else nn.Identity()
