"""Weights in a safetensors file: exactly the expected names and shapes, in one precision or in int8.

In int8, each row of a matrix becomes whole numbers from -127 to 127 and one scale, the row's largest absolute value
/ 127; vectors stay as they are. Reading gives float32 again, with an error of at most half a scale. CTranslate2
quantizes in the same way, so that its int8 weights are exactly those of the file.
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

LARGEST_INT8 = 127


def to_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Quantize the matrices; each gets a second tensor with its scales."""
    result = {}
    for name, tensor in weights.items():
        if tensor.dim() == 2 and tensor.is_floating_point():
            largest = tensor.detach().float().abs().amax(dim=1)
            scale = torch.where(largest > 0, largest / LARGEST_INT8, 1.0)
            result[name] = (
                (tensor.detach().float() / scale[:, None]).round().clamp(-LARGEST_INT8, LARGEST_INT8).to(torch.int8)
            )
            result[name + SCALE] = scale
        else:
            result[name] = tensor
    return result


def from_int8(numbers: Tensor, scale: Tensor) -> Tensor:
    """Return the float32 matrix of whole numbers (R, C) and scales (R,)."""
    return numbers.float() * scale[:, None]


PRECISIONS = ("F64", "F32", "F16", "BF16")  # in safetensors' names; and I8 for matrices with scales


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name. A shared tensor has only its first name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def in_precision(weights: dict[str, Tensor], precision: Precision | None) -> dict[str, Tensor]:
    """Convert tensors to the precision of a file; None: as they are."""
    if precision == "int8":
        weights = to_int8(weights)
    elif precision is not None:
        kind = {"float32": torch.float32, "float16": torch.float16}[precision]
        weights = {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    return {name: tensor.contiguous() for name, tensor in weights.items()}


def read_weights(path: Path, *, expected: dict[str, Tensor], device: str | torch.device) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, whose names and shapes must be exactly those of `expected`.

    int8 matrices become float32.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            names = set(file.keys())
            _check_names(path, names - {name + SCALE for name in shapes}, set(shapes))
            _check_unique(path)  # after the names, so that a header with a hundred thousand other names is read once
            parts = {name: file.get_slice(name) for name in names}
            kinds = {name: str(part.get_dtype()) for name, part in parts.items()}
            scales = {n + SCALE: shape[:1] for n, shape in shapes.items() if kinds.get(n) == "I8" and len(shape) == 2}
            _check_names(path, names, set(shapes | scales))
            _check_precision(path, {name: kind for name, kind in kinds.items() if name + SCALE not in scales})
            for name, expected_shape in (shapes | scales).items():
                if (shape := tuple(parts[name].get_shape())) != expected_shape:
                    raise UserError(f"{path}: '{name}' has shape {shape}, but {CONFIG} asks for {expected_shape}")
            # Copied for two reasons: safetensors maps the file, which may be overwritten while the model runs; and the
            # mapped memory is aligned differently from PyTorch's own, which changes how the matrix library rounds.
            weights = {name: file.get_tensor(name).clone() for name in shapes | scales}
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable safetensors file: {error}") from None
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{path}: '{name}' holds a number that is not finite (NaN or infinity)")
    whole = {name.removesuffix(SCALE) for name in scales}
    return {n: from_int8(weights[n], weights[n + SCALE]) if n in whole else weights[n] for n in shapes}


def _check_precision(path: Path, precisions: dict[str, str]) -> None:
    for name, precision in precisions.items():
        if precision not in PRECISIONS:
            raise UserError(f"{path}: '{name}' is of type {precision}; allowed: {', '.join(PRECISIONS)}")
    if len(kinds := sorted(set(precisions.values()))) > 1:
        raise UserError(f"{path}: mixes {' and '.join(kinds)}; all weights must be of one type")


def _check_unique(path: Path) -> None:
    """Raise a UserError for a name that occurs twice: safetensors would keep the last, other readers the first."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise UserError(f"{path}: the header has two tensors with the same name")
        return dict(pairs)

    with path.open("rb") as file:  # safetensors has checked the header
        json.loads(file.read(int.from_bytes(file.read(8), "little")), object_pairs_hook=unique)


def _check_names(path: Path, names: set[str], expected: set[str]) -> None:
    refuse_names(f"{path}: does not fit {CONFIG}", sorted(expected - names), sorted(names - expected))


def refuse_names(prefix: str, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raise a UserError if tensors are missing or unexpected: how many, and the first names."""
    counts = [
        f"{problem} {len(names)} ({', '.join(name[:100] for name in names[:3])}{', …' if len(names) > 3 else ''})"
        for problem, names in (("missing", missing), ("unexpected", unexpected))
        if names
    ]
    if counts:
        raise UserError(f"{prefix}: {'; '.join(counts)}")
