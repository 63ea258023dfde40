"""From the last vectors to what is asked: words of the vocabulary, labels, features."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .dropout import Dropout
from .norms import LayerNorm


class VocabularyHead(nn.Module):
    """Logits: how well each word of the vocabulary fits. Softmax is left to whoever needs probabilities."""

    def __init__(self, *, d_model: int, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, vocab_size, bias=bias)

    def share(self, table: nn.Embedding) -> None:
        """Use an embedding's numbers as the weight: the same matrix reads words and writes them (Press & Wolf 2017)."""
        share_weight(self.linear, table)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, T, V)
        logits: Tensor = self.linear(x)
        return logits


class Pooler(nn.Module):
    """One vector of a whole text or image: what the first token has gathered, mapped and bent by tanh."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, D)
        return torch.tanh(self.linear(x[:, 0]))


class MaskedHead(nn.Module):
    """BERT's head for hidden words: one more map, bend and norm (`before`), then the logits of each word.

    The pooler has no part in that: pre-training left it beside, for those who want features of a whole text.
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
        share_weight(self.linear, table)

    def before(self, x: Tensor) -> Tensor:
        """What `linear` is applied to: (…, D) -> (…, D). Training calls it for the hidden words alone."""
        normed: Tensor = self.norm(self.activation(self.transform(x)))
        return normed

    def forward(self, x: Tensor) -> Tensor:  # (…, D) -> (…, V)
        logits: Tensor = self.linear(self.before(x))
        return logits


class Classifier(nn.Module):
    """Logits of the labels of a whole text or image, from its first token, pooled or as it is. (B, T, D) -> (B, L)."""

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
    """Logits of the labels of each token. (B, T, D) -> (B, T, L)."""

    def __init__(self, *, d_model: int, n_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(d_model, n_labels)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.dropout(x))
        return logits


class PatchHead(nn.Module):
    """For each patch, the class token left out: its pixels, or where it came from. (B, 1 + P, D) -> (B, P, N)."""

    def __init__(self, *, d_model: int, n_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(x[:, 1:])
        return result


def share_weight(linear: nn.Linear, table: nn.Embedding) -> None:
    if table.weight.shape != linear.weight.shape:
        raise ValueError(f"cannot share {tuple(table.weight.shape)} with {tuple(linear.weight.shape)}")
    linear.weight = table.weight
