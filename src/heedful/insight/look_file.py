"""Looks as files: the base class of every look, the trace file (docs/look.md), and saving by suffix."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.atomic_io import atomic_file
from heedful.errors import UserError, invalid_choice
from heedful.insight.attention_maps import AttentionMaps
from heedful.insight.html_export import framed, stand_alone_page
from heedful.insight.packed_arrays import to_plain

FORMAT, VERSION = "heedful-trace", 4
PARTS = (
    "model",
    "source",
    "target",
    "translation",
    "attention",
    "alignment",
    "steps",
    "beam",
    "positions",
    "lens",
    "causes",
    "walk",
    "halting",
    "changes",
    "answer",
    "image",
    "pieces",
)
ATTENTION_KINDS = ("encoder", "decoder", "cross")
PICTURES = (".svg", ".png", ".pdf")
SUFFIXES = (".html", ".json", ".npz", *PICTURES)

Arrays = dict[str, np.ndarray]


class LookFile(ABC):
    """Base class of a look at one input: its trace file, its page in a notebook, and its files.

    A subclass names its parts in `to_values`, its arrays in `_arrays` and draws its picture in `_draw`.
    """

    tensors: dict[str, Tensor]  # every named tensor of the forward pass (`Trace.tensors`)

    @abstractmethod
    def to_values(self) -> dict[str, object]:
        """Return the object of the trace file as plain values."""

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return the arrays of the .npz file, without the trace and the tensors."""

    @abstractmethod
    def _draw(self, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str) -> None:
        """Draw the attention of one layer and head, counted from 1, as "svg", "png" or "pdf"."""

    def to_json(self) -> str:
        """Return the trace file as one line of JSON."""
        return json.dumps(self.to_values(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        return framed(stand_alone_page(self.to_values()))

    def _save(self, path: Path, *, layer: int | None, head: int | None, kind: str) -> Path:
        """Write the file that the suffix of `path` names. An interrupted write leaves no file under this name."""
        check_suffix(path)
        suffix = path.suffix.lower()
        with atomic_file(path) as file:
            if suffix == ".html":
                file.write(stand_alone_page(self.to_values()).encode("utf-8", "replace"))
            elif suffix == ".json":
                file.write(self.to_json().encode("utf-8", "replace") + b"\n")
            elif suffix == ".npz":
                np.savez_compressed(file, allow_pickle=False, **self._all_arrays())
            else:
                self._draw(file, suffix[1:], layer=layer, head=head, kind=kind)
        return path

    def _all_arrays(self) -> Arrays:
        trace = {"trace": np.frombuffer(self.to_json().encode("utf-8", "replace"), np.uint8)}
        tensors = {f"tensors/{name}": _to_numpy(tensor) for name, tensor in self.tensors.items()}
        return {**trace, **self._arrays(), **tensors}


def trace_values(parts: Mapping[str, object]) -> dict[str, object]:
    """Build the object of the trace file: the same keys for every model family, None for a part that it lacks."""
    unknown = sorted(set(parts) - set(PARTS))
    assert not unknown, f"the trace file has no part {unknown}"
    values = {name: to_plain(parts.get(name)) for name in PARTS}
    attention = parts["attention"]
    assert isinstance(attention, Mapping)
    values["attention"] = {kind: to_plain(attention.get(kind)) for kind in ATTENTION_KINDS}
    return {"format": FORMAT, "version": VERSION, **values}


def check_suffix(path: Path) -> None:
    """Raise a UserError if no look can be saved at `path`. Commands call it before they load a model."""
    if path.suffix.lower() not in SUFFIXES:
        raise invalid_choice(f"{path}: the suffix chooses the kind of file", path.suffix, SUFFIXES)
    if path.is_dir() or not path.absolute().parent.is_dir():
        problem = "is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise UserError(f"{path}: {problem}; name a file in an existing folder")


def attention_arrays(maps: Mapping[str, AttentionMaps]) -> Arrays:
    """Return weights, scores and masks of each kind of attention under the names that docs/look.md lists."""
    arrays: Arrays = {}
    for kind, attention in maps.items():
        arrays[f"attention/{kind}"] = attention.weights.values
        arrays[f"scores/{kind}"] = attention.scores.values
        arrays[f"mask/{kind}"] = attention.mask.values.astype(bool)
    return arrays


def _to_numpy(tensor: Tensor) -> np.ndarray:
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # NumPy has no bfloat16
    return tensor.cpu().numpy()
