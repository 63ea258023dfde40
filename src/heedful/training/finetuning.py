"""Which parts of a model learn, how fast, and from when: for models that start from another.

Freezing keeps parts as they are. Discriminative rates let layers learn the slower the nearer they are to the input, and
gradual unfreezing wakes them one after the other from the top (ULMFiT, Howard & Ruder 2018).
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from heedful.errors import UserError, did_you_mean
from heedful.models.model_io import LoadedModel, Model, weights_of
from heedful.nn.heads import Pooler

_LAYER = re.compile(r"\blayers\.(\d+)\.")


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep the parameters of these parts as they are; the names of these parameters.

    A pattern is the name of a part ("embedding", "encoder.layers.0") or has stars in it ("*.layers.0").
    """
    names = [name for name, _ in model.named_parameters()]
    frozen: dict[str, None] = {}
    for pattern in patterns:
        found = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            parts = dict.fromkeys(part for name in names for part in _parts_of(name))
            raise UserError(
                f"'optimiser.frozen' names {pattern!r}, and this model has no such part{did_you_mean(pattern, parts)}\n"
                f"allowed: {', '.join(name for name in parts if name.count('.') <= 1)}, …"
            )
        frozen |= dict.fromkeys(found)
    if len(frozen) == len(names):
        raise UserError(f"'optimiser.frozen' = {list(patterns)}: leaves nothing to learn")
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    return list(frozen)


def depths_of(model: nn.Module) -> dict[str, int]:
    """How far from the input each parameter is: 0 before the first layer, 1 in it, …, the highest after the last.

    A table that is looked up is at the input wherever it stands: T5's of distances belongs to all layers.
    """
    names = [name for name, _ in model.named_parameters()]
    tables = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Embedding)}
    layers = [_LAYER.search(name) for name in names]
    numbers = [None if found is None else int(found[1]) for found in layers]
    top = max((number for number in numbers if number is not None), default=-1) + 2
    first = next((place for place, number in enumerate(numbers) if number is not None), len(names))
    return {
        name: (0 if place < first or name in tables else top) if number is None else number + 1
        for place, (name, number) in enumerate(zip(names, numbers, strict=True))
    }


def unfreeze_layers(optimiser: torch.optim.Optimizer, step: int, every: int) -> None:
    """Let the parts learn whose turn has come: the topmost from the start, one more every so many steps."""
    if every < 1:
        return
    top = max(group["depth"] for group in optimiser.param_groups)
    for group in optimiser.param_groups:
        group["active"] = 1.0 if group["depth"] >= top - step // every else 0.0


def load_matching_weights(model: Model, start: LoadedModel) -> str:
    """Take over all numbers that fit, and say which do not: a head for other labels begins anew."""
    given = weights_of(start.model)
    if _head_of(model) != _head_of(start.model):
        given = {name: tensor for name, tensor in given.items() if not name.startswith("head.")}
    poolers = _poolers(model, start.model)  # learned in pre-training, and the same whatever head it stands in
    given |= {name: weights_of(start.model)[there] for name, there in poolers.items()}
    new, taken = [], set()
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            if name in given and given[name].shape == tensor.shape:
                _copy(tensor, given[name])
                taken.add(poolers.get(name, name))
            else:
                new.append(name)
    if not taken:
        raise UserError(f"{start.folder}: no part of this model fits the one to be trained")
    left = [name for name in weights_of(start.model) if name not in taken]
    words = f"begins with the weights of {start.folder}"
    if new:
        words += f"; new, and to be learned: {_listed(new)}"
    return words + (f"; left behind: {_listed(left)}" if left else "")


def _copy(tensor: Tensor, given: Tensor) -> None:
    tensor.copy_(given.to(device=tensor.device, dtype=tensor.dtype))


def _head_of(model: nn.Module) -> tuple[object, object]:
    """What makes two heads alike: their kind, and the labels in their order."""
    config = getattr(model, "config", None)
    return getattr(config, "head", None), getattr(config, "labels", None)


def _poolers(model: nn.Module, start: nn.Module) -> dict[str, str]:
    """The numbers of the model's pooler, and what they are called in the one to start from, if both have one."""
    places = [[name for name, part in one.named_modules() if isinstance(part, Pooler)] for one in (model, start)]
    if not all(places):
        return {}
    return {f"{places[0][0]}.linear.{end}": f"{places[1][0]}.linear.{end}" for end in ("weight", "bias")}


def _parts_of(name: str) -> list[str]:
    """ "a.b.weight" -> "a", "a.b", "a.b.weight"."""
    words = name.split(".")
    return [".".join(words[: i + 1]) for i in range(len(words))]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
