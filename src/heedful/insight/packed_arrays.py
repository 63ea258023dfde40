"""Arrays inside JSON: base64 of little-endian numbers, with type and shape (docs/look.md, "Packed arrays")."""

import base64
import binascii
import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

Kind = Literal["u8", "u16", "f16", "f32"]
Floats = npt.NDArray[np.float32]
TYPES: dict[str, str] = {"u8": "<u1", "u16": "<u2", "f16": "<f2", "f32": "<f4"}
U16_STEPS = 65535
DIGITS = 7  # significant digits of plain numbers: the precision of float32


@dataclass(frozen=True)
class Packed:
    """An array, exact in memory, with the number type in which JSON stores it. "u16" stores numbers from 0 to 1."""

    values: Floats
    kind: Kind

    def to_json(self) -> dict[str, object]:
        """Return dtype, shape and base64 data."""
        if self.kind == "u16":
            numbers = np.rint(self.values.astype(np.float64) * U16_STEPS).clip(0, U16_STEPS)
        elif self.kind == "f16":
            numbers = self.values.clip(-65504.0, 65504.0)  # the largest finite float16
        else:
            numbers = self.values
        data = np.ascontiguousarray(numbers.astype(TYPES[self.kind])).tobytes()
        return {
            "dtype": self.kind,
            "shape": list(self.values.shape),
            "data": base64.b64encode(data).decode("ascii"),
        }


def pack(values: Tensor | npt.NDArray[np.generic], kind: Kind) -> Packed:
    """Copy a tensor or array to float32 and choose how JSON stores it."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else values
    return Packed(np.array(array, np.float32), kind)


def unpack(packed: object) -> Floats:
    """Restore an array that was read from JSON; raise a ValueError that names the defect."""
    if not isinstance(packed, dict) or set(packed) != {"dtype", "shape", "data"}:
        raise ValueError("a packed array has dtype, shape and data, and nothing else")
    kind, shape, data = packed["dtype"], packed["shape"], packed["data"]
    if kind not in TYPES:
        raise ValueError(f"dtype {kind!r} is none of {', '.join(TYPES)}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"shape {shape!r} is not a list of sizes")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError) as error:
        raise ValueError(f"data is not base64: {error}") from None
    numbers = np.frombuffer(raw, TYPES[kind]) if len(raw) % np.dtype(TYPES[kind]).itemsize == 0 else np.empty(0)
    if len(numbers) != math.prod(shape):
        raise ValueError(f"{len(raw)} bytes are not {kind} of shape {shape}")
    values = numbers.astype(np.float32).reshape(shape)
    return values / np.float32(U16_STEPS) if kind == "u16" else values


def to_plain(value: object) -> object:
    """Convert dataclasses, packed arrays and containers to values that `json` can write; round floats to 7 digits."""
    if isinstance(value, Packed):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return value
