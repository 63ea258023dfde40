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

# If several tasks fit family and files, the task that lists the family earliest is taken, or the first of these.
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

TEXT_METRICS = ("bleu", "chrf", "exact")  # they need translations: run.validation_sentences of them

# content of the files -> the options that name them
OPTIONS: dict[Content, str] = {
    "pairs": "--source and --target",
    "text": "--text",
    "labels": "--labels",
    "tags": "--tags",
    "images": "--images",
}


def task_of(settings: Settings) -> Task[Any]:
    """Return the task that resolved settings name."""
    return TASKS[settings.task or "translation"]


def tasks_that_use(setting: str) -> list[str]:
    """Return the names of the tasks that use a setting; all of them if no task lists it as its own.

    >>> tasks_that_use("data.isolate_documents")
    ['next_token']
    """
    users = [name for name, task in TASKS.items() if setting in task.settings_used]
    return users or list(TASKS)


def metric_of(settings: Settings) -> str:
    """Return the metric of a run: run.metric, or for "auto" the task's usual one; the loss if nothing is translated."""
    metric = task_of(settings).metrics[0] if settings.run.metric == "auto" else settings.run.metric
    return "loss" if metric in TEXT_METRICS and settings.run.validation_sentences == 0 else metric


def choose_task(family: str, task: str, content: Content) -> str:
    """Return the name of the task for a family and its files; raise a UserError that lists what fits."""
    if family not in FAMILIES:
        raise invalid_choice("family", family, FAMILIES)
    if task and task not in TASKS:
        raise invalid_choice("task", task, TASKS)
    if task:
        chosen = TASKS[task]
        if family not in chosen.families:
            raise UserError(f"task = '{task}' is for {_listed(chosen.families)}, and the family is '{family}'")
        if content != chosen.content:
            raise UserError(f"task = '{task}' learns from {OPTIONS[chosen.content]}, not from {OPTIONS[content]}")
        return task
    of_family = {name: other for name, other in TASKS.items() if family in other.families}
    if fitting := [name for name, other in of_family.items() if other.content == content]:
        return min(fitting, key=lambda name: TASKS[name].families.index(family))
    options = dict.fromkeys(OPTIONS[other.content] for other in of_family.values())
    families = dict.fromkeys(f for other in TASKS.values() if other.content == content for f in other.families)
    raise UserError(
        f"a model of the family '{family}' learns from {' or '.join(options)}, not from {OPTIONS[content]}; "
        f"with {OPTIONS[content]} use --family {', '.join(families)}"
    )


def _listed(names: tuple[str, ...]) -> str:
    return f"the family {names[0]}" if len(names) == 1 else f"the families {', '.join(names)}"
