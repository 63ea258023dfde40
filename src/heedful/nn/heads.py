"""Heads: from the last hidden states to logits of the vocabulary or of labels, or to features."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .dropout import Dropout
from .norms import LayerNorm


class VocabularyHead(nn.Module):
    """The output layer: the logits of each token of the vocabulary, before the softmax."""

    def __init__(self, *, d_model: int, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, vocab_size, bias=bias)

    def share(self, table: nn.Embedding) -> None:
        """Use the weight of an embedding as the weight of this layer (Press & Wolf 2017)."""
        share_weight(self.linear, table)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, T, V)
        logits: Tensor = self.linear(x)
        return logits


class Pooler(nn.Module):
    """Features of a whole text or image: a linear layer and tanh of the first token's hidden state."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, D)
        return torch.tanh(self.linear(x[:, 0]))


class MaskedHead(nn.Module):
    """BERT's head for masked words: a linear layer, an activation and a norm (`before`), then the logits.

    The pooler is not used for masked words. It is kept from pre-training, for features of a whole text.
    """

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int,
        activation: Callable[[Tensor], Tensor],
        eps: float = 1e-5,
        pooler: Pooler | None = None,
    ) -> None:
        super().__init__()
        self.pooler = pooler
        self.transform = nn.Linear(d_model, d_model)
        self.activation = activation
        self.norm = LayerNorm(d_model, eps=eps)
        self.linear = nn.Linear(d_model, vocab_size)

    def share(self, table: nn.Embedding) -> None:
        """Use the weight of an embedding as the weight of the last layer."""
        share_weight(self.linear, table)

    def before(self, x: Tensor) -> Tensor:
        """Return the input of the last layer: (…, D) -> (…, D). Training calls this for masked words only."""
        normed: Tensor = self.norm(self.activation(self.transform(x)))
        return normed

    def forward(self, x: Tensor) -> Tensor:  # (…, D) -> (…, V)
        logits: Tensor = self.linear(self.before(x))
        return logits


class ClassificationHead(nn.Module):
    """The logits of the labels of a text or image, from its first token or its pooler: (B, T, D) -> (B, L)."""

    def __init__(self, *, d_model: int, n_labels: int, dropout: float = 0.0, pooler: Pooler | None = None) -> None:
        super().__init__()
        self.pooler = pooler
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(d_model, n_labels)

    def forward(self, x: Tensor) -> Tensor:
        features = x[:, 0] if self.pooler is None else self.pooler(x)
        logits: Tensor = self.linear(self.dropout(features))
        return logits


class TokenClassifier(nn.Module):
    """The logits of the labels of each token: (B, T, D) -> (B, T, L)."""

    def __init__(self, *, d_model: int, n_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(d_model, n_labels)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.dropout(x))
        return logits


class PatchHead(nn.Module):
    """N outputs for each patch, without the class token: its pixels, or its place. (B, 1 + P, D) -> (B, P, N)."""

    def __init__(self, *, d_model: int, n_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(x[:, 1:])
        return result


def share_weight(linear: nn.Linear, table: nn.Embedding) -> None:
    """Let a linear layer use the weight of an embedding."""
    if table.weight.shape != linear.weight.shape:
        raise ValueError(
            f"cannot share a weight of shape {tuple(table.weight.shape)} with a layer of {tuple(linear.weight.shape)}"
        )
    linear.weight = table.weight
