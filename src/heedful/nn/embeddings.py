"""From token numbers to vectors."""

import torch.nn.functional as F
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """A row of W for each token, times `scale`.

    The rows start with variance 1 / D, as the tied output layer needs them. Times sqrt(D) they have variance one and
    are not drowned by the position code beside them (section 3.4).
    """

    def __init__(self, *, vocab_size: int, d_model: int, scale: float | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = d_model**0.5 if scale is None else scale

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, D)
        embedded: Tensor = self.table(ids) * self.scale
        return embedded


def one_hot(ids: Tensor, vocab_size: int, *, like: Tensor) -> Tensor:
    """The same tokens as rows of zeros with a single one: one_hot(ids) @ W is exactly W[ids]. (B, T) -> (B, T, V)."""
    return F.one_hot(ids, vocab_size).to(like.dtype)
