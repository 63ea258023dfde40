"""Weights as whole numbers of eight bits: a quarter of the size, for a model that travels.

A matrix becomes numbers from -127 to 127 and one scale for each of its rows, its largest number / 127; vectors stay as
they are. Reading gives float32 again: no number is further from the original than half a scale. CTranslate2 quantises
alike, so that its int8 has exactly the whole numbers of the file.
"""

import torch
from torch import Tensor

from heedful.models.find import SCALE

MOST = 127


def to_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the file holds: for each matrix its whole numbers and its scales."""
    result = {}
    for name, tensor in weights.items():
        if tensor.dim() == 2 and tensor.is_floating_point():
            largest = tensor.detach().float().abs().amax(dim=1)
            scale = torch.where(largest > 0, largest / MOST, 1.0)
            result[name] = (tensor.detach().float() / scale[:, None]).round().clamp(-MOST, MOST).to(torch.int8)
            result[name + SCALE] = scale
        else:
            result[name] = tensor
    return result


def from_int8(numbers: Tensor, scale: Tensor) -> Tensor:
    """(R, C) whole numbers and (R,) scales -> float32."""
    return numbers.float() * scale[:, None]
