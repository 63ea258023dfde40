"""What a model is told before each text: "summarize: ". Hugging Face has it in config.json, by task or for all."""

import warnings
from collections.abc import Mapping
from typing import Any

from heedful.interop.values import Values
from heedful.models.find import ANY_TASK

BY_TASK, FOR_ALL = "task_specific_params", "prefix"


def prefixes_from(values: Values) -> dict[str, str]:
    """Task -> prefix; of the rest, how wide and how long to search, nothing is taken."""
    tasks = values.get(BY_TASK, {})
    if not isinstance(tasks, dict) or not all(isinstance(task, dict) for task in tasks.values()):
        raise values.wrong(BY_TASK, "a table of tasks")
    found = {ANY_TASK: values.get(FOR_ALL), **{name: task.get("prefix") for name, task in tasks.items()}}
    for name, prefix in found.items():
        if prefix is not None and not isinstance(prefix, str):
            raise values.wrong(BY_TASK if name in tasks else FOR_ALL, f"a text for '{name}'")
    return {name: prefix for name, prefix in found.items() if prefix}


def prefixes_to(prefixes: Mapping[str, str]) -> dict[str, Any]:
    """The same in Hugging Face's words."""
    tasks = {name: {"prefix": prefix} for name, prefix in prefixes.items() if name != ANY_TASK}
    said: dict[str, Any] = {BY_TASK: tasks} if tasks else {}
    return said | ({FOR_ALL: prefixes[ANY_TASK]} if ANY_TASK in prefixes else {})


def warn_of_prefixes(values: Values) -> None:
    """For a family that has no place for them: name what its users must pass themselves."""
    if found := prefixes_from(values):
        said = ", ".join(f"{prefix!r} ({name})" for name, prefix in found.items())
        warnings.warn(
            f"{values.where}: its pipelines put words before each text, and this is not kept: {said}; "
            "pass it as prefix= to heedful.pipeline, or to heedful summarize as --prefix",
            stacklevel=3,
        )
