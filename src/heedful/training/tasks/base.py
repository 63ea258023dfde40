"""The frame of a task: what a model learns, from files to model card.

A `Task` is known before there is any data; together with its prepared data it becomes a `PreparedTask`. Trainer, plan
and model card know a task only through these two. To add a task, write a module in this folder and a line in
registry.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from heedful.data.collate import TensorBatch
from heedful.data.loader import Dataset
from heedful.errors import UserError
from heedful.models.model_io import FAMILIES, Model
from heedful.text import TokenizerConfig, Tokenizers
from heedful.training.events import Notify
from heedful.training.objectives import Objective
from heedful.training.run_config import Content, Files
from heedful.training.settings import DataSettings, Settings
from heedful.training.validation import Validator

P = TypeVar("P")  # what a task prepares

# Settings that only some tasks use, in groups; `Task.settings_used` lists all of these that the task uses.
TEXT_SETTINGS = frozenset({"data.on_bad_line"}) | frozenset(
    f"tokenizer.{field.name}" for field in fields(TokenizerConfig) if field.name not in ("joint", "sample_alpha")
)
RUNNING_TEXT_SETTINGS = TEXT_SETTINGS | {"data.documents", "data.hold_out_share"}
ENCODER_DECODER_SETTINGS = frozenset(
    {"loss.label_smoothing", "loss.r_drop"}
    | {f"objective.{name}" for name in ("kind", "rate", "decay", "decay_steps", "token_cutoff")}
)


@dataclass(frozen=True)
class Preparation:
    """The arguments of `Task.prepare`, which prepares data in the run folder, in stages that are complete or absent."""

    folder: Path
    files: Files
    settings: Settings
    tokenizers: Tokenizers | None  # of a model to start from
    notify: Notify


@dataclass(frozen=True)
class TaskDescription:
    """A task and its data in words, for the model card and for the end of a run."""

    what: str  # "translation model"
    output: str  # what the model makes: "translations"
    tag: str  # the task as model hubs call it
    unit: str  # what the corpora are counted in: "pairs"
    train: tuple[int, ...]  # the number of examples of each corpus
    valid: int
    valid_sha256: str
    command: str  # what to type next, with {run} for the run folder


@dataclass(frozen=True)
class PreparedTask:
    """A task with its data: the parts that a trainer needs."""

    tokenizers: Tokenizers | None
    make_dataset: Callable[[bool], Dataset[TensorBatch]]  # True: batches in page-locked memory, for a GPU
    make_model: Callable[[], Model]
    objective: Objective
    make_validator: Callable[[Notify], Validator[Any]]  # reports the examples that it cannot use
    description: TaskDescription


@dataclass(frozen=True)
class Task(Generic[P]):
    """A task before there is data."""

    families: tuple[str, ...]  # of models that can learn it
    content: Content  # of its files
    metrics: tuple[str, ...]  # that `run.metric` may name, the usual one first
    settings_used: frozenset[str]  # of the settings that not every task uses
    recipe: Callable[[str, Files, DataSettings], str]  # (family, files, how they are read) -> a built-in recipe
    prepare: Callable[[Preparation], None]
    reopen: Callable[[Path, Settings], P]  # read what was prepared; the files themselves are not needed
    assemble: Callable[[P, Settings], PreparedTask]
    counted: str = "target tokens"  # what the loss is averaged over, and what speed counts


def build(config: Any, settings: Settings) -> Model:
    """Make a model with new weights, the same on every rank."""
    torch.manual_seed(settings.run.seed)
    return FAMILIES[settings.family][1](config)


def refuse_weights(preparation: Preparation) -> None:
    """Raise a UserError if data.weights is set: for tasks that join all files to one corpus."""
    if weights := preparation.settings.data.weights:
        raise UserError(
            f"data.weights = {list(weights)}: files of {preparation.files.content} are joined to one corpus, and each "
            "of their examples is seen once in an epoch. Leave data.weights out"
        )
