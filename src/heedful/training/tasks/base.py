"""What a run is for, from its files to its card: the frame of a task.

A `Task` is known before there is any data; with its data it becomes a `PreparedTask`. The loop, the session, the
plan and the card know nothing else of what a model learns. A new task is a file beside this one and a line in table.py.

A model from its config, with the numbers that a run begins with; and the ids that a tokenizer keeps for itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from heedful.data.collate import TensorBatch
from heedful.data.loader import Dataset
from heedful.models.model_io import FAMILIES, Model
from heedful.text import Tokenizers
from heedful.training.objectives import Objective
from heedful.training.run_config import Content, Files
from heedful.training.settings import DataSettings, Settings
from heedful.training.validation import Validation

P = TypeVar("P")  # what a task prepares

Say = Callable[[str], None]


@dataclass(frozen=True)
class Preparation:
    """What a task is given to prepare its data in the run's folder, in stages that are whole or absent."""

    folder: Path
    files: Files
    settings: Settings
    tokenizers: Tokenizers | None  # those of a model to start from
    say: Say


class Validator(Protocol):
    def __call__(self, model: Model) -> Validation:
        """The scores of the model, which is left in the mode it was in."""


@dataclass(frozen=True)
class TaskDescription:
    """What is said of a task and its data: on the card, and when a run is done."""

    what: str  # "translation model"
    output: str  # what it makes, in words: "translations"
    tag: str  # as model hubs call the task
    unit: str  # of which its corpora are made: "pairs"
    train: tuple[int, ...]  # how many of them each corpus has
    valid: int
    valid_sha256: str
    command: str  # what to type next, with {run} for the run's folder


@dataclass(frozen=True)
class PreparedTask:
    """A task with its data at hand: parts, and functions that make parts."""

    tokenizers: Tokenizers | None
    make_dataset: Callable[[bool], Dataset[TensorBatch]]  # True: in page-locked memory, for a GPU
    make_model: Callable[[], Model]
    objective: Objective
    make_validator: Callable[[Say], Validator]  # which says what it cannot judge
    about: TaskDescription


@dataclass(frozen=True)
class Task(Generic[P]):
    """What is known before there is data."""

    families: tuple[str, ...]  # of models that can learn it
    content: Content  # what its files hold
    metrics: tuple[str, ...]  # what `run.metric` may name, the usual one first
    recipe: Callable[[str, Files, DataSettings], str]  # the built-in recipe for a family and files that are read so
    prepare: Callable[[Preparation], None]
    reopen: Callable[[Path, Settings], P]  # what was prepared; the files themselves are not needed
    lesson: Callable[[P, Settings], PreparedTask]


def build(config: Any, settings: Settings) -> Model:
    torch.manual_seed(settings.run.seed)  # the same first weights on every rank
    return FAMILIES[settings.family][1](config)
