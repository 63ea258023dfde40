"""A run's tensors by name: out of the model and the optimiser into a checkpoint, and back.

Under FSDP a rank holds only its part of each; all ranks must then ask together.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.folder import weights_of
from heedful.training.distributed import like, whole


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: whole(tensor.detach()) for name, tensor in weights_of(model).items()}


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that the optimiser remembers of a parameter, as "parameter/what"."""
    return {
        f"{name}/{what}": whole(value)
        for name, parameter in model.named_parameters()
        for what, value in optimiser.state.get(parameter, {}).items()
    }


def load_model_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            tensor.copy_(like(tensor, tensors[name]))


def refuse_other_shapes(model: nn.Module, tensors: dict[str, Tensor], *, saved: Path, record: Path) -> None:
    """A record that was edited by hand describes another model than the one that was saved."""
    wanted, found = ({name: list(t.shape) for name, t in named.items()} for named in (weights_of(model), tensors))
    for name in wanted | found:
        if wanted.get(name) != found.get(name):
            raise UserError(
                f"{record}: was changed since this run was saved: '{name}' has the shape {wanted.get(name, 'none')} by "
                f"it, and {found.get(name, 'none')} in {saved.name}. Undo the change, or begin a new run"
            )


def load_optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("/")
        parameter = parameters[name]
        # A count of steps is one number, the same on all ranks; everything else has the parameter's shape.
        value = like(parameter, tensor) if tensor.shape == parameter.shape else tensor.to(parameter.device)
        optimiser.state[parameter][what] = value


def generator_tensors() -> dict[str, Tensor]:
    """The state of every random generator that training draws from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda-{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def load_generator_tensors(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda-{i}" in states:
                torch.cuda.set_rng_state(states[f"cuda-{i}"], i)
