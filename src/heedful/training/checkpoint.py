"""Checkpoints: one folder for each saved step, from which a run can be resumed.

    checkpoints/step-000500/  model.safetensors · optimiser.safetensors · generators.safetensors · [ema.safetensors]
                              · state.json (step, data position, scores, versions) · manifest.json

A folder is written under another name, synced, renamed, and never changed again. A damaged one is reported, and the
one before it is used. The formats are safetensors and JSON: a checkpoint of unknown origin can hold wrong weights, but
no code. Under FSDP a rank holds only its part of each tensor, so all ranks must call the functions that read tensors.
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
    """Return the weights of a model by name, gathered from all ranks."""
    return {name: full_tensor(tensor.detach()) for name, tensor in weights_of(model).items()}


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of the optimiser by "parameter/state", for example "head.weight/exp_avg"."""
    return {
        f"{name}/{what}": full_tensor(value)
        for name, parameter in model.named_parameters()
        for what, value in optimiser.state.get(parameter, {}).items()
    }


def load_model_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy weights into a model."""
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            tensor.copy_(shard_like(tensor, tensors[name]))


def refuse_other_shapes(model: nn.Module, tensors: dict[str, Tensor], *, saved: Path, record: Path) -> None:
    """Raise a UserError if settings.toml was edited by hand and describes another model than the saved one."""
    expected, actual = ({name: list(t.shape) for name, t in named.items()} for named in (weights_of(model), tensors))
    for name in expected | actual:
        if expected.get(name) != actual.get(name):
            raise UserError(
                f"{record}: was changed since this run was saved: '{name}' has the shape {expected.get(name, 'none')} "
                f"by it, and {actual.get(name, 'none')} in {saved.name}. Undo the change, or begin a new run"
            )


def load_optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put the state that `optimiser_tensors` returned into an optimiser."""
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("/")
        parameter = parameters[name]
        # The number of steps is a scalar, the same on all ranks; all other state has the parameter's shape.
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
    """Return the state of every random generator of torch."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda-{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def load_generator_tensors(states: dict[str, Tensor]) -> None:
    """Restore the random generators."""
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda-{i}" in states:
                torch.cuda.set_rng_state(states[f"cuda-{i}"], i)


MODEL, OPTIMISER, GENERATORS, EMA = (f"{name}.safetensors" for name in ("model", "optimiser", "generators", "ema"))


@dataclass
class TrainerState:
    """The state of a run besides its tensors."""

    loader: LoaderState
    step: int = 0
    tokens: int = 0  # target tokens so far
    seconds: float = 0.0  # spent training, over all sittings
    scores: dict[str, float] = field(default_factory=dict)  # step -> validation score, higher is better
    validations_since_best: int = 0  # validations since the best one

    @property
    def best_step(self) -> int | None:
        """The step with the best validation score; the first one, if several are equal."""
        return int(max(self.scores, key=lambda step: self.scores[step])) if self.scores else None


@dataclass
class Checkpoint:
    """A checkpoint, loaded."""

    folder: Path
    state: TrainerState
    versions: dict[str, Any]
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    generators: dict[str, Tensor]
    ema: dict[str, Tensor]


def save_checkpoint(
    checkpoints: Path,
    state: TrainerState,
    *,
    model: dict[str, Tensor],
    optimiser: dict[str, Tensor],
    generators: dict[str, Tensor],
    ema: dict[str, Tensor],
) -> Path:
    """Write a checkpoint and return its folder; older checkpoints stay as they are, whatever happens."""
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
    """Load a checkpoint; raise a UserError if it is damaged."""
    check_manifest(folder)
    values = read_json(folder / "state.json")
    try:
        tensors = {
            name: load_file(folder / name) if (folder / name).exists() else {}
            for name in (MODEL, OPTIMISER, GENERATORS, EMA)
        }
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder}: cannot be read: {error}") from None
    state = config_from_dict(TrainerState, values["state"], where=str(folder / "state.json"))
    return Checkpoint(
        folder, state, values["versions"], tensors[MODEL], tensors[OPTIMISER], tensors[GENERATORS], tensors[EMA]
    )


def newest_checkpoint(checkpoints: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """Load the newest checkpoint that is not damaged; None if there are no checkpoints.

    Damaged ones are reported and renamed. If all are damaged, a UserError is raised: a run that began anew would
    overwrite the models of this run.
    """
    for folder in reversed(list_checkpoints(checkpoints)):
        try:
            return load_checkpoint(folder)
        except UserError as error:
            report(f"{error}\nThis checkpoint is damaged: it is renamed, and the one before it is used.")
            folder.rename(_free_name(folder))
    if any(checkpoints.glob("damaged-*")):
        raise UserError(
            f"{checkpoints}: none of its checkpoints can be read, and starting over would overwrite the models of this "
            f"run. Begin a run in another folder with the best of them: --init-from {checkpoints.parent / 'best'}"
        )
    return None


def _free_name(folder: Path) -> Path:
    """Return an unused name for a damaged checkpoint."""
    names = (folder.with_name(f"damaged-{folder.name}{f'-{n}' if n > 1 else ''}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest step first."""
    return sorted(checkpoints.glob("step-*"), key=lambda folder: int(folder.name.removeprefix("step-")))


def prune(checkpoints: Path, *, keep_last: int, best: Iterable[int]) -> None:
    """Delete all checkpoints but the last `keep_last` and those of the steps in `best`."""
    saved = list_checkpoints(checkpoints)
    kept = {folder.name for folder in saved[-keep_last:]} | {f"step-{step:06d}" for step in best}
    for folder in saved:
        if folder.name not in kept:
            delete_folder(folder)


def versions() -> dict[str, Any]:
    """Return what the bits of a result depend on: versions, and the number of threads."""
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
    """Make the error of a full disk."""
    free = shutil.disk_usage(folder).free
    return UserError(
        f"{folder}: no room for a checkpoint: it needs {needed:,} bytes, and {free:,} are free. The older checkpoints "
        "are intact. Free some space, then resume the run with --resume"
    )
