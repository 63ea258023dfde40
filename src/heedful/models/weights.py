"""Weights as whole numbers of eight bits: a quarter of the size, for a model that travels.

A matrix becomes numbers from -127 to 127 and one scale for each of its rows, its largest number / 127; vectors stay as
they are. Reading gives float32 again: no number is further from the original than half a scale. CTranslate2 quantises
alike, so that its int8 has exactly the whole numbers of the file.

The weights of a model in a file, and back: by name, in one precision, nothing missing and nothing beside it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.model_info import CONFIG, SCALE, Precision

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


PRECISIONS = ("F64", "F32", "F16", "BF16")  # as safetensors names them; and I8 for matrices with scales


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, a tensor that is shared by its first name only."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def in_precision(weights: dict[str, Tensor], precision: Precision | None) -> dict[str, Tensor]:
    """The tensors as a file is to hold them; None: as they are."""
    if precision == "int8":
        weights = to_int8(weights)
    elif precision is not None:
        kind = {"float32": torch.float32, "float16": torch.float16}[precision]
        weights = {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    return {name: tensor.contiguous() for name, tensor in weights.items()}


def read_weights(path: Path, *, expected: dict[str, Tensor], device: str | torch.device) -> dict[str, Tensor]:
    """The tensors of a safetensors file, whose names and shapes must be exactly the expected ones.

    A matrix of int8 has its scales beside it, and becomes float32.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            names = set(file.keys())
            _check_names(path, names - {name + SCALE for name in shapes}, set(shapes))
            _check_unique(path)  # after the names: a header of a hundred thousand others is read once
            parts = {name: file.get_slice(name) for name in names}
            kinds = {name: str(part.get_dtype()) for name, part in parts.items()}
            scales = {n + SCALE: shape[:1] for n, shape in shapes.items() if kinds.get(n) == "I8" and len(shape) == 2}
            _check_names(path, names, set(shapes | scales))
            _check_precision(path, {name: kind for name, kind in kinds.items() if name + SCALE not in scales})
            for name, wanted in (shapes | scales).items():
                if (shape := tuple(parts[name].get_shape())) != wanted:
                    raise UserError(f"{path}: '{name}' has shape {shape}, but {CONFIG} asks for {wanted}")
            # Copies: what safetensors gives is the file itself, which may be overwritten in use, and at addresses for
            # which the matrix library rounds differently than for a tensor of PyTorch's.
            weights = {name: file.get_tensor(name).clone() for name in shapes | scales}
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable safetensors file: {error}") from None
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{path}: '{name}' holds a number that is not finite (NaN or infinity)")
    whole = {name.removesuffix(SCALE) for name in scales}
    return {n: from_int8(weights[n], weights[n + SCALE]) if n in whole else weights[n] for n in shapes}


def _check_precision(path: Path, found: dict[str, str]) -> None:
    for name, precision in found.items():
        if precision not in PRECISIONS:
            raise UserError(f"{path}: '{name}' is of type {precision}; allowed: {', '.join(PRECISIONS)}")
    if len(set(found.values())) > 1:
        raise UserError(f"{path}: mixes {' and '.join(sorted(set(found.values())))}; all weights must be of one type")


def _check_unique(path: Path) -> None:
    """Of two tensors with one name safetensors keeps the last, other readers the first: a file must not have them."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise UserError(f"{path}: a name stands twice in its header")
        return dict(pairs)

    with path.open("rb") as file:  # safetensors has already found the header sound
        json.loads(file.read(int.from_bytes(file.read(8), "little")), object_pairs_hook=unique)


def _check_names(path: Path, found: set[str], expected: set[str]) -> None:
    refuse_names(f"{path}: does not fit {CONFIG}", sorted(expected - found), sorted(found - expected))


def refuse_names(words: str, missing: Sequence[str], surplus: Sequence[str]) -> None:
    """A UserError, if there are any: how many tensors are missing or not asked for, and the first of them."""
    counts = [
        f"{what} {len(names)} ({', '.join(name[:100] for name in names[:3])}{', …' if len(names) > 3 else ''})"
        for what, names in (("missing", missing), ("not asked for", surplus))
        if names
    ]
    if counts:
        raise UserError(f"{words}: {'; '.join(counts)}")
