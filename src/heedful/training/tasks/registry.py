"""All tasks, and which one a run has."""

from typing import Any

from heedful.errors import UserError, invalid_choice
from heedful.models.model_io import FAMILIES
from heedful.training.run_config import Content
from heedful.training.settings import Settings
from heedful.training.tasks.base import Task
from heedful.training.tasks.denoising import DENOISING, SPANS
from heedful.training.tasks.images import IMAGE_CLASSIFICATION, MASKED_PATCHES, SHUFFLED_PATCHES
from heedful.training.tasks.language_modeling import NEXT_TOKEN
from heedful.training.tasks.masked_language_modeling import MASKED_TOKENS
from heedful.training.tasks.text_classification import CLASSIFICATION
from heedful.training.tasks.token_classification import TAGGING
from heedful.training.tasks.translation import TRANSLATION

# name -> task; of several that fit a family and its files, the one that names the family first is meant, or the first
TASKS: dict[str, Task[Any]] = {
    "translation": TRANSLATION,
    "next_token": NEXT_TOKEN,
    "masked_tokens": MASKED_TOKENS,
    "classification": CLASSIFICATION,
    "tagging": TAGGING,
    "denoising": DENOISING,
    "spans": SPANS,
    "image_classification": IMAGE_CLASSIFICATION,
    "masked_patches": MASKED_PATCHES,
    "shuffled_patches": SHUFFLED_PATCHES,
}

WRITTEN = ("bleu", "chrf", "exact")  # metrics of sentences that the model writes: `run.validation_sentences` of them

# what files hold -> the options that name them
OPTIONS: dict[Content, str] = {
    "pairs": "--source and --target",
    "text": "--text",
    "labels": "--labels",
    "tags": "--tags",
    "images": "--images",
}


def task_of(settings: Settings) -> Task[Any]:
    """The task that settled settings name; older records name none, they are translations."""
    return TASKS[settings.task or "translation"]


def metric_of(settings: Settings) -> str:
    """What "better" means in a run: what it names, else the task's usual metric; where nothing is written, the loss."""
    named = task_of(settings).metrics[0] if settings.run.metric == "auto" else settings.run.metric
    return "loss" if named in WRITTEN and settings.run.validation_sentences == 0 else named


def choose_task(family: str, task: str, content: Content) -> str:
    """The name of the task for a family and what its files hold, or a UserError that says what there is."""
    if family not in FAMILIES:
        raise invalid_choice("family", family, FAMILIES)
    if task and task not in TASKS:
        raise invalid_choice("task", task, TASKS)
    if task:
        found = TASKS[task]
        if family not in found.families:
            raise UserError(f"task = '{task}' is for {_listed(found.families)}, and the family is '{family}'")
        if content != found.content:
            raise UserError(f"task = '{task}' learns from {OPTIONS[found.content]}, not from {OPTIONS[content]}")
        return task
    of_family = {name: one for name, one in TASKS.items() if family in one.families}
    if usual := [name for name, one in of_family.items() if one.content == content]:
        return min(usual, key=lambda name: TASKS[name].families.index(family))
    fitting = dict.fromkeys(OPTIONS[one.content] for one in of_family.values())
    others = dict.fromkeys(f for one in TASKS.values() if one.content == content for f in one.families)
    raise UserError(
        f"a model of the family '{family}' learns from {' or '.join(fitting)}, not from {OPTIONS[content]}; "
        f"with {OPTIONS[content]} use --family {', '.join(others)}"
    )


def _listed(names: tuple[str, ...]) -> str:
    return f"the family {names[0]}" if len(names) == 1 else f"the families {', '.join(names)}"
