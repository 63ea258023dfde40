"""From token numbers to vectors.

From images to rows of patches, and back. A patch is to an image what a token is to a text (Dosovitskiy et al. 2021).

P patches of C x s x s numbers each, row by row from the upper left corner.
"""

import torch
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


class PatchEmbedding(nn.Module):
    """One linear map of each patch: a convolution whose stride is its width. (B, C, H, W) -> (B, P, D)."""

    def __init__(self, *, n_channels: int, patch_size: int, d_model: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(n_channels, d_model, kernel_size=patch_size, stride=patch_size)

    def forward(self, pixels: Tensor) -> Tensor:
        # Pictures are read as float32, whatever the numbers of the model are.
        projected: Tensor = self.projection(pixels.to(self.projection.weight.dtype))  # (B, D, H / s, W / s)
        return projected.flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    """A learned vector before the first patch, which gathers what a classifier reads. (B, P, D) -> (B, 1 + P, D)."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(1, d_model))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.vector.expand(x.size(0), 1, -1), x], dim=1)


class MaskToken(nn.Module):
    """One learned vector in place of each patch that is hidden: `masked` (B, P), True = hidden."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(1, d_model))

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:  # (B, P, D) -> (B, P, D)
        return torch.where(masked[..., None], self.vector, x)


def to_patches(pixels: Tensor, size: int) -> Tensor:
    """(B, C, H, W) -> (B, P, C x s x s): the numbers of each patch, channel by channel, row by row."""
    batch, n_channels, height, width = pixels.shape
    rows, columns = height // size, width // size
    grid = pixels.reshape(batch, n_channels, rows, size, columns, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, n_channels * size * size)


def from_patches(patches: Tensor, size: int, *, n_channels: int) -> Tensor:
    """The square image of which `to_patches` makes these: (B, P, C x s x s) -> (B, C, H, H)."""
    batch, n_patches, _ = patches.shape
    side = round(n_patches**0.5)
    grid = patches.reshape(batch, side, side, n_channels, size, size)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(batch, n_channels, side * size, side * size)


def reordered(x: Tensor, order: Tensor) -> Tensor:
    """Row i becomes what was row order[i]: (B, P, D), (B, P) -> (B, P, D)."""
    return x.gather(1, order[..., None].expand_as(x))
