"""Helpers of the parity tests of encoders: a Hugging Face model with distinct weights, and heedful's import of it."""

from pathlib import Path

import torch
from torch import Tensor, nn

from deterministic import numbers
from heedful.interop.huggingface.checkpoint import MODEL_TYPES, import_huggingface
from heedful.interop.huggingface.tensor_map import read_tensors
from heedful.models.model_io import load_model

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-10}


def unlike(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Give every parameter distinct values, so that no bias is zero and no norm the identity."""
    model = model.to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = numbers(*parameter.shape, name=name, dtype=dtype)
            norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(values * 0.1 + 1 if norm else values * (0.3 if parameter.dim() > 1 else 0.2))
    return model


def imported(theirs, folder: Path) -> nn.Module:
    """Return heedful's model, imported from what `save_pretrained` writes."""
    theirs.save_pretrained(folder / "theirs")
    return load_model(import_huggingface(folder / "theirs", folder / "ours")).model


def close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> bool:
    """Return whether two tensors are equal up to BOUNDS, absolute, or relative if values are larger than one."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} is not {tuple(theirs.shape)}"
    assert ours.dtype == theirs.dtype == dtype
    scale = max(1.0, float(theirs.detach().abs().max()))
    return float((ours - theirs).detach().abs().max()) <= BOUNDS[dtype] * scale


def gradients_differ(ours: nn.Module, theirs: nn.Module, kind: str, dtype: torch.dtype) -> list[str]:
    """Return the names of the parameters whose gradients differ."""
    model_type, config = MODEL_TYPES[kind], ours.config
    there = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    wanted = read_tensors(model_type.tensor_map(config), there)
    found = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert set(wanted) == set(found)
    return [name for name, gradient in found.items() if not close(gradient, wanted[name], dtype)]


def recorded(model: nn.Module, *modules: nn.Module) -> list[Tensor]:
    """Return a list that collects the outputs of modules in order when the model runs."""
    outputs: list[Tensor] = []
    for module in modules:
        module.register_forward_hook(lambda _, __, output: outputs.append(output))
    return outputs
