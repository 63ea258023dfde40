"""A run's tensors by name: out of the model and the optimiser into a checkpoint, and back.

Under FSDP a rank holds only its part of each; all ranks must then ask together.

Where a run can go on: one folder for each saved step, complete or not there at all.

    checkpoints/step-000500/  model.safetensors · optimiser.safetensors · generators.safetensors · [ema.safetensors]
                              · state.json (step, data position, scores, versions) · manifest.json

Each is written aside, synced, renamed and never changed again. A damaged one is reported, and the one before it is
taken. safetensors and JSON only: a checkpoint from a stranger can hold wrong numbers, but it cannot run.
"""

import itertools
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heedful import __version__
from heedful.atomic_io import atomic_folder, check_manifest, delete_folder, is_full, write_json
from heedful.config import config_from_dict, read_json
from heedful.data.loader import LoaderState
from heedful.errors import UserError
from heedful.models.model_io import weights_of
from heedful.training.distributed import full_tensor, shard_like


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: full_tensor(tensor.detach()) for name, tensor in weights_of(model).items()}


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that the optimiser remembers of a parameter, as "parameter/what"."""
    return {
        f"{name}/{what}": full_tensor(value)
        for name, parameter in model.named_parameters()
        for what, value in optimiser.state.get(parameter, {}).items()
    }


def load_model_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            tensor.copy_(shard_like(tensor, tensors[name]))


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
        value = shard_like(parameter, tensor) if tensor.shape == parameter.shape else tensor.to(parameter.device)
        optimiser.state[parameter][what] = value


def average_of(models: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of the weights of several models of one shape, summed in float64."""
    zero = torch.tensor(0.0).double()
    return {
        name: (sum((model[name].double() for model in models), zero) / len(models)).to(tensor.dtype)
        for name, tensor in models[0].items()
    }


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


MODEL, OPTIMISER, GENERATORS, EMA = (f"{name}.safetensors" for name in ("model", "optimiser", "generators", "ema"))


@dataclass
class State:
    """What a run knows of itself, besides its tensors."""

    loader: LoaderState
    step: int = 0
    tokens: int = 0  # target tokens seen
    seconds: float = 0.0  # spent training, over all sittings
    scores: dict[str, float] = field(default_factory=dict)  # step -> validation score, higher is better
    validations_since_best: int = 0  # validations since the best one

    @property
    def best_step(self) -> int | None:
        return int(max(self.scores, key=lambda step: self.scores[step])) if self.scores else None


@dataclass
class Checkpoint:
    """A saved step, read back."""

    folder: Path
    state: State
    versions: dict[str, Any]
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    generators: dict[str, Tensor]
    ema: dict[str, Tensor]


def save_checkpoint(
    checkpoints: Path,
    state: State,
    *,
    model: dict[str, Tensor],
    optimiser: dict[str, Tensor],
    generators: dict[str, Tensor],
    ema: dict[str, Tensor],
) -> Path:
    """Write one step; the older ones stay as they are, whatever happens."""
    folder = checkpoints / f"step-{state.step:06d}"
    tensors = {MODEL: model, OPTIMISER: optimiser, GENERATORS: generators, EMA: ema}
    needed = sum(tensor.nbytes for group in tensors.values() for tensor in group.values())
    checkpoints.mkdir(parents=True, exist_ok=True)
    _check_room(checkpoints, needed)
    try:
        with atomic_folder(folder) as aside:
            for name, group in tensors.items():
                if group:
                    save_file({key: tensor.detach().cpu().contiguous() for key, tensor in group.items()}, aside / name)
            values = {"state": asdict(state), "versions": versions()}
            write_json(aside / "state.json", values)
    except (OSError, SafetensorError) as error:
        if is_full(error):
            raise no_room(checkpoints, needed) from None
        raise
    return folder


def load_checkpoint(folder: Path) -> Checkpoint:
    """One saved step, or a UserError that says what is wrong with it."""
    check_manifest(folder)
    values = read_json(folder / "state.json")
    try:
        tensors = {
            name: load_file(folder / name) if (folder / name).exists() else {}
            for name in (MODEL, OPTIMISER, GENERATORS, EMA)
        }
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder}: cannot be read: {error}") from None
    state = config_from_dict(State, values["state"], where=str(folder / "state.json"))
    return Checkpoint(
        folder, state, values["versions"], tensors[MODEL], tensors[OPTIMISER], tensors[GENERATORS], tensors[EMA]
    )


def newest_checkpoint(checkpoints: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest one that is whole. A damaged one is reported, set aside under another name, and passed over. Where
    none is left it is for the user to say what becomes of the models that the run has made.
    """
    for folder in reversed(list_checkpoints(checkpoints)):
        try:
            return load_checkpoint(folder)
        except UserError as error:
            report(f"{error}\nThis checkpoint is damaged: it is set aside, and the one before it is taken.")
            folder.rename(_free_name(folder))
    if any(checkpoints.glob("damaged-*")):
        raise UserError(
            f"{checkpoints}: none of its checkpoints can be read, and to begin anew would write over the models of "
            f"this run. Start another one with the best of them: --init-from {checkpoints.parent / 'best'}"
        )
    return None


def _free_name(folder: Path) -> Path:
    """For a damaged one; the same step may be damaged a second time."""
    names = (folder.with_name(f"damaged-{folder.name}{f'-{n}' if n > 1 else ''}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def list_checkpoints(checkpoints: Path) -> list[Path]:
    return sorted(checkpoints.glob("step-*"), key=lambda folder: int(folder.name.removeprefix("step-")))


def prune(checkpoints: Path, *, keep_last: int, best: Iterable[int]) -> None:
    """Delete all but the last few and those of the given steps."""
    saved = list_checkpoints(checkpoints)
    kept = {folder.name for folder in saved[-keep_last:]} | {f"step-{step:06d}" for step in best}
    for folder in saved:
        if folder.name not in kept:
            delete_folder(folder)


def versions() -> dict[str, Any]:
    return {
        "heedful": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


def _check_room(folder: Path, needed: int) -> None:
    if shutil.disk_usage(folder).free < needed * 1.05:
        raise no_room(folder, needed)


def no_room(folder: Path, needed: int) -> UserError:
    free = shutil.disk_usage(folder).free
    return UserError(
        f"{folder}: no room for a checkpoint: it needs {needed:,} bytes, and {free:,} are free. The older checkpoints "
        "are intact. Make room, then go on with --resume"
    )
