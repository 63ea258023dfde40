"""Numbers for tests without a random generator: each is a hash of a name and its place.

They are the same on every machine, in whatever order tests run, and one more call changes none of the others.
"""

import zlib

import numpy as np
import torch
from torch import Tensor, nn


def uniform(*shape: int, name: str = "") -> Tensor:
    """Return numbers in [0, 1), float64."""
    places = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64)
    z = (places + np.uint64(zlib.crc32(name.encode()) << 32)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # the mixing steps of splitmix64
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return torch.from_numpy((z >> np.uint64(11)) * 2.0**-53).reshape(shape)


def numbers(*shape: int, name: str = "", dtype: torch.dtype = torch.float64) -> Tensor:
    """Return numbers with mean zero and variance one."""
    return ((uniform(*shape, name=name) * 2 - 1) * 3**0.5).to(dtype)


def whole_numbers(*shape: int, below: int, first: int = 0, name: str = "") -> Tensor:
    """Return whole numbers with first <= number < below."""
    return (uniform(*shape, name=name) * (below - first)).long() + first


def mask_of(*shape: int, name: str = "", density: float = 0.7) -> Tensor:
    return uniform(*shape, name=name) < density


def fill(model: nn.Module, *, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Give every parameter and buffer distinct values, so that no bias is zero and no norm the identity, in `dtype`."""
    model = model.to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = numbers(*parameter.shape, name=name, dtype=dtype)
            if parameter.dim() > 1:
                parameter.copy_(values * parameter.size(-1) ** -0.5)
            else:
                parameter.copy_(values * 0.2 + (1 if name.endswith("norm.weight") else 0))
        for name, buffer in model.named_buffers():
            values = numbers(*buffer.shape, name=name, dtype=dtype)
            buffer.copy_(1 + 0.3 * values if name.endswith("var") else 0.3 * values)
    return model


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; NaN counts as infinite."""
    assert a.shape == b.shape, f"{tuple(a.shape)} is not {tuple(b.shape)}"
    difference = (a.detach().double() - b.detach().double()).abs()
    return float("inf") if difference.isnan().any() else float(difference.max()) if a.numel() else 0.0
