"""A look as a file; the suffix says which kind."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.atomic_io import atomic_file
from heedful.errors import UserError, invalid_choice
from heedful.insight.attention_maps import CrossAttention
from heedful.insight.attention_plot import plot_attention
from heedful.insight.attention_svg import KINDS, attention_picture
from heedful.insight.html_export import stand_alone_page
from heedful.insight.look import Look

SUFFIXES = (".html", ".json", ".npz", ".svg", ".png", ".pdf")


def check_suffix(path: Path) -> None:
    """Complain of what cannot work before the model is asked."""
    if path.suffix.lower() not in SUFFIXES:
        raise invalid_choice(f"{path}: the suffix says what to write", path.suffix, SUFFIXES)
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(f"{path}: {what}; name a file in a folder that is there")


def save(seen: Look, path: Path, *, layer: int | None = None, head: int | None = None, kind: str = "cross") -> Path:
    """Write the whole file or none: it has another name until it is complete."""
    check_suffix(path)
    if kind not in KINDS:
        raise invalid_choice("kind", kind, KINDS)
    maps = attention_of(seen, kind)
    writers: dict[str, Callable[[BinaryIO], object]] = {
        ".html": lambda file: file.write(stand_alone_page(seen.to_values()).encode("utf-8", "replace")),
        ".json": lambda file: file.write(seen.to_json().encode("utf-8", "replace") + b"\n"),
        ".npz": lambda file: write_npz(seen, file),
        ".svg": lambda file: file.write(
            attention_picture(maps, layer=layer, head=head, kind=kind).encode("utf-8", "replace")
        ),
        ".png": lambda file: plot_attention(maps, file, format="png", layer=layer, head=head, kind=kind),
        ".pdf": lambda file: plot_attention(maps, file, format="pdf", layer=layer, head=head, kind=kind),
    }
    with atomic_file(path) as file:
        writers[path.suffix.lower()](file)
    return path


def attention_of(seen: Look, kind: str) -> CrossAttention:
    """The maps of one kind with the tokens of their columns (keys: `source`) and rows (queries: `target`)."""
    keys = {"cross": seen.source.tokens, "encoder": seen.source.tokens, "decoder": seen.target.inputs}[kind]
    queries = seen.source.tokens if kind == "encoder" else seen.target.tokens
    return CrossAttention(keys, queries, torch.from_numpy(seen.attention[kind].weights.values))


def write_npz(seen: Look, file: BinaryIO) -> None:
    """Every number, exact, and no pickle: what `numpy.load` gives is described in docs/look.md."""
    arrays: dict[str, np.ndarray] = {
        "trace": np.frombuffer(seen.to_json().encode("utf-8", "replace"), np.uint8),
        "source_ids": np.array(seen.source.ids),
        "target_ids": np.array(seen.target.ids),
        "target_input_ids": np.array(seen.target.input_ids),
    }
    for kind, maps in seen.attention.items():
        arrays |= {f"attention/{kind}": maps.weights.values, f"scores/{kind}": maps.scores.values}
        arrays[f"mask/{kind}"] = maps.mask.values.astype(bool)
    arrays |= {f"tensors/{name}": _array(tensor) for name, tensor in seen.tensors.items()}
    np.savez_compressed(file, allow_pickle=False, **arrays)


def _array(tensor: Tensor) -> np.ndarray:
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # numpy knows no bfloat16
    return tensor.cpu().numpy()
