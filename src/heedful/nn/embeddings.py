"""Embeddings of tokens and of image patches.

An image is a row of P patches of C x s x s pixels, row by row from the upper left corner (Dosovitskiy et al. 2021).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """A learned vector for each token, times `scale`, which is sqrt(D) by default.

    The vectors are initialized with variance 1 / D, as a tied output layer needs it. Times sqrt(D) they have variance
    1, so that the position code does not dominate them (section 3.4).
    """

    def __init__(self, *, vocab_size: int, d_model: int, scale: float | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = d_model**0.5 if scale is None else scale

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, D)
        embedded: Tensor = self.table(ids) * self.scale
        return embedded


def one_hot(ids: Tensor, vocab_size: int, *, like: Tensor) -> Tensor:
    """Return one-hot rows, (B, T) -> (B, T, V), in the dtype of `like`; one_hot(ids) @ W equals W[ids]."""
    return F.one_hot(ids, vocab_size).to(like.dtype)


class PatchEmbedding(nn.Module):
    """A linear layer for each patch, as a convolution with stride = width: (B, C, H, W) -> (B, P, D)."""

    def __init__(self, *, n_channels: int, patch_size: int, d_model: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(n_channels, d_model, kernel_size=patch_size, stride=patch_size)

    def forward(self, pixels: Tensor) -> Tensor:
        # Images are read as float32, whatever the dtype of the model.
        projected: Tensor = self.projection(pixels.to(self.projection.weight.dtype))  # (B, D, H / s, W / s)
        return projected.flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    """A learned vector before the first patch; classifiers read its last hidden state. (B, P, D) -> (B, 1 + P, D)."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(1, d_model))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.vector.expand(x.size(0), 1, -1), x], dim=1)


class MaskToken(nn.Module):
    """A learned vector that replaces each masked patch: `masked` (B, P), True = masked."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(1, d_model))

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:  # (B, P, D) -> (B, P, D)
        return torch.where(masked[..., None], self.vector, x)


def to_patches(pixels: Tensor, size: int) -> Tensor:
    """Cut images into patches of `size` x `size` pixels: (B, C, H, W) -> (B, P, C x s x s)."""
    batch, n_channels, height, width = pixels.shape
    rows, columns = height // size, width // size
    grid = pixels.reshape(batch, n_channels, rows, size, columns, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, n_channels * size * size)


def from_patches(patches: Tensor, size: int, *, n_channels: int) -> Tensor:
    """Join the patches of square images, the inverse of `to_patches`: (B, P, C x s x s) -> (B, C, H, H)."""
    batch, n_patches, _ = patches.shape
    side = round(n_patches**0.5)
    grid = patches.reshape(batch, side, side, n_channels, size, size)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(batch, n_channels, side * size, side * size)


def reordered(x: Tensor, order: Tensor) -> Tensor:
    """Permute the patches: the new patch i is the old patch order[i]. (B, P, D), (B, P) -> (B, P, D)."""
    return x.gather(1, order[..., None].expand_as(x))
