"""The tensors of somebody else's folder: safetensors, in one file or in parts, and nothing that could run."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from heedful.config import read_json
from heedful.errors import UserError
from heedful.models.find import WEIGHTS, other_kind
from heedful.models.weights import PRECISIONS

INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def read_folder_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors, or of the files that its index names."""
    if (folder / WEIGHTS).is_file():
        return _read_file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    found = next((name for name in PICKLES if (folder / name).exists()), None)
    if found is not None:
        raise UserError(
            f"{folder / found}: heedful reads safetensors only, since such a file can run code when it is opened. "
            "Load it where you trust it and save it again: model.save_pretrained(folder, safe_serialization=True)"
        )
    raise UserError(
        f"{folder}: {other_kind(folder) or f'has no weights ({WEIGHTS}); copy the folder again, with all of its files'}"
    )


def _read_shards(folder: Path) -> dict[str, Tensor]:
    where, places = folder / INDEX, read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{where}: has no 'weight_map' of names to files")
    weights: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{where}: {name!r} is not the name of a safetensors file in this folder")
        found = _read_file(folder / name)
        if twice := sorted(set(found) & set(weights)):
            raise UserError(f"{where}: '{twice[0]}' stands in two files")
        weights |= found
    if set(weights) != set(places):
        raise UserError(f"{where}: its list differs from what is in the files; copy the folder again")
    return weights


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                if (precision := file.get_slice(name).get_dtype()) not in (*PRECISIONS, "I64", "I32", "U8", "BOOL"):
                    raise UserError(f"{path}: '{name}' is of type {precision}; allowed: {', '.join(PRECISIONS)}")
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable safetensors file: {error}") from None


def one_precision(weights: dict[str, Tensor], *, where: str) -> dict[str, Tensor]:
    """All in the widest type that is there, which loses nothing; every number must be finite."""
    widest = torch.bfloat16
    types = {tensor.dtype for tensor in weights.values()}
    for one in types:
        widest = one if len(types) == 1 else torch.promote_types(widest, one)
    if not widest.is_floating_point:
        raise UserError(f"{where}: its weights are of type {widest}; heedful reads {', '.join(PRECISIONS)}")
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{where}: '{name}' holds a number that is not finite (NaN or infinity)")
    return {name: tensor.to(widest) for name, tensor in weights.items()}
