"""Training from a pre-trained model: its weights, frozen parts, layer-wise learning rates, gradual unfreezing.

Discriminative learning rates (lower towards the input) and gradual unfreezing (from the top) are those of ULMFiT,
Howard & Ruder 2018.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from heedful.errors import UserError, did_you_mean
from heedful.models.model_io import LoadedModel, Model, weights_of
from heedful.nn.heads import Pooler

_LAYER = re.compile(r"\blayers\.(\d+)\.")


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Exclude parameters from training, and return their names.

    A pattern is the name of a part ("embedding", "encoder.layers.0") or has stars in it ("*.layers.0").
    """
    names = [name for name, _ in model.named_parameters()]
    frozen: dict[str, None] = {}
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not matches:
            parts = dict.fromkeys(part for name in names for part in _parts_of(name))
            raise UserError(
                f"'optimiser.frozen' names {pattern!r}, which this model does not have{did_you_mean(pattern, parts)}\n"
                f"allowed: {', '.join(name for name in parts if name.count('.') <= 1)}, …"
            )
        frozen |= dict.fromkeys(matches)
    if len(frozen) == len(names):
        raise UserError(f"'optimiser.frozen' = {list(patterns)}: leaves nothing to train")
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    return list(frozen)


def depths_of(model: nn.Module) -> dict[str, int]:
    """Return the depth of each parameter: 0 before the first layer, 1 in it, …, the highest after the last.

    Embedding tables have depth 0 wherever they are: T5's table of distances, for example, belongs to all layers.
    """
    names = [name for name, _ in model.named_parameters()]
    tables = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Embedding)}
    layers = [_LAYER.search(name) for name in names]
    numbers = [None if layer is None else int(layer[1]) for layer in layers]
    top = max((number for number in numbers if number is not None), default=-1) + 2
    first = next((i for i, number in enumerate(numbers) if number is not None), len(names))
    return {
        name: (0 if i < first or name in tables else top) if number is None else number + 1
        for i, (name, number) in enumerate(zip(names, numbers, strict=True))
    }


def unfreeze_layers(optimiser: torch.optim.Optimizer, step: int, every: int) -> None:
    """Train the topmost layer from the start, and one more layer after every `every` steps; 0: all from the start."""
    if every < 1:
        return
    top = max(group["depth"] for group in optimiser.param_groups)
    for group in optimiser.param_groups:
        group["active"] = 1.0 if group["depth"] >= top - step // every else 0.0


def load_matching_weights(model: Model, start: LoadedModel) -> str:
    """Copy all weights that fit into the model, and return a sentence about the other weights.

    A head for other labels starts with new weights; a pooler is taken over whatever head it is part of.
    """
    weights = weights_of(start.model)
    if _head_of(model) != _head_of(start.model):
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    poolers = _poolers(model, start.model)
    weights |= {name: weights_of(start.model)[name_there] for name, name_there in poolers.items()}
    new, taken = [], set()
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            if name in weights and weights[name].shape == tensor.shape:
                tensor.copy_(weights[name].to(device=tensor.device, dtype=tensor.dtype))
                taken.add(poolers.get(name, name))
            else:
                new.append(name)
    if not taken:
        raise UserError(f"{start.folder}: none of its weights fit the model to be trained")
    left = [name for name in weights_of(start.model) if name not in taken]
    text = f"starts from the weights of {start.folder}"
    if new:
        text += f"; new: {_listed(new)}"
    return text + (f"; not used: {_listed(left)}" if left else "")


def _head_of(model: nn.Module) -> tuple[object, object]:
    """Return what two heads must share to have the same weights: kind and labels in order."""
    config = getattr(model, "config", None)
    return getattr(config, "head", None), getattr(config, "labels", None)


def _poolers(model: nn.Module, start: nn.Module) -> dict[str, str]:
    """Return the names of the pooler's weights -> their names in the start model, if both have a pooler."""
    names = [[name for name, part in one.named_modules() if isinstance(part, Pooler)] for one in (model, start)]
    if not all(names):
        return {}
    return {f"{names[0][0]}.linear.{end}": f"{names[1][0]}.linear.{end}" for end in ("weight", "bias")}


def _parts_of(name: str) -> list[str]:
    """Return a name and all names that it begins with.

    >>> _parts_of("a.b.weight")
    ['a', 'a.b', 'a.b.weight']
    """
    words = name.split(".")
    return [".".join(words[: i + 1]) for i in range(len(words))]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
