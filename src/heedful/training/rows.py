"""What an event says, as label and text: the words that every view uses."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from heedful.training.log import LESS_IS_BETTER, Event, PlanEvent, StartEvent, StepEvent, ValidationEvent
from heedful.training.wording import count, duration, harmless, number, rate, size

LABEL_WIDTH = 13
METRICS = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1", "bits": "bits per character"}  # the others as they are
PLACES = {"loss": 3, "perplexity": 1, "bits": 3}  # of numbers, after the point; usually 2


def metric_of(event: StartEvent) -> str:
    """What "better" means in this run."""
    return str(event["settings"].get("run", {}).get("metric", "bleu"))


def rows(event: Event, metric: str) -> Iterator[tuple[str, str]]:
    """Label and text of each line; of a step none, since views differ in how they show progress."""
    if event["event"] == "start":
        yield "heedful", ", ".join(_about_start(event))
    elif event["event"] == "note":
        yield "", harmless(event["text"])
    elif event["event"] == "warning":
        yield "warning", harmless(event["text"])
    elif event["event"] == "plan":
        yield from zip(("plan", "", ""), _about_plan(event), strict=True)
    elif event["event"] == "validation":
        yield "validation", f"step {count(event['step'])} · {scores(event)}"
        yield "", f"{best(event, metric)} · took {duration(event['seconds'])}"
    elif event["event"] == "saved":
        words = f"step {count(event['step'])} · {size(event['bytes'])} in {duration(event['seconds'])}"
        yield "saved", f"{words} · {harmless(event['folder'])}"
    elif event["event"] == "stop":
        yield "stopped", harmless(event["reason"])
        spent = f"step {count(event['step'])} · {duration(event['seconds'])} of training"
        memory = f" · {size(event['peak_memory_bytes'])} of memory at most" if "peak_memory_bytes" in event else ""
        yield "", f"{spent} · {count(event['tokens'])} target tokens{memory}"
    elif event["event"] == "done":
        for i, (name, folder) in enumerate(event["folders"].items()):
            yield "" if i else "models", f"{name:<{LABEL_WIDTH}}{harmless(folder)}"
        command = event.get("command", "heedful translate -m {run} INPUT --output OUTPUT")
        runs = {str(Path(folder).parent): None for folder in event["folders"].values()}
        for run in runs:
            yield "next", command.replace("{run}", harmless(shlex.quote(run)))


def share_done(event: StepEvent) -> float:
    """How much of the run is behind: by time, since a run may end by the clock long before its last step."""
    left = event["seconds_left"]
    if left is None or event["seconds"] + left <= 0:
        return event["step"] / max(1, event["steps"])
    return event["seconds"] / (event["seconds"] + left)


def step_facts(event: StepEvent) -> list[str]:
    return [
        f"loss {number(event['loss'], 3)}",
        f"{count(event['tokens_per_second'])} tokens/s",
        f"lr {rate(event['lr'])}",
        f"gradient {number(event['grad_norm'], 2)}",
        f"epoch {count(event['epoch'] + 1)}",
        duration(event["seconds"]),
        f"{duration(event['seconds_left'])} left",
    ]


def scores(event: ValidationEvent) -> str:
    found = {"loss": event["loss"], "perplexity": event["perplexity"]}
    found |= {"bleu": event.get("bleu"), "chrf": event.get("chrf")} if "bleu" in event else {}
    found |= event.get("metrics", {})
    return " · ".join(
        f"{METRICS.get(name, name)} {number(value, PLACES.get(name, 2))}"
        for name, value in found.items()
        if name == "loss" or value is not None
    )


def best(event: ValidationEvent, metric: str) -> str:
    """Where the best score was, and how much patience is left for a better one."""
    if event["best"]:
        words = f"the best {METRICS.get(metric, metric)} so far"
    else:
        value = event["best_score"]
        shown = -value if value is not None and metric in LESS_IS_BETTER else value
        score = f"{METRICS.get(metric, metric)} {number(shown, PLACES.get(metric, 2))}"
        words = f"the best is {score} at step {count(event['best_step'])}"
    if event["patience"] is None:
        return words
    left = max(0, event["patience"] - event["waited"])
    return f"{words} · patience left: {left} of {event['patience']}"


def _about_start(event: StartEvent) -> Iterator[str]:
    yield event["version"]
    for name, version in event.get("versions", {}).items():
        if name != "heedful":
            yield f"{name} {version}"
    if precision := event["settings"].get("run", {}).get("precision"):
        yield str(precision)
    if (parameters := event.get("parameters")) is not None:
        yield f"{count(parameters)} parameters"


def _about_plan(event: PlanEvent) -> tuple[str, str, str]:
    speed = f"{count(event['tokens_per_second'])} target tokens/s measured"
    low, high = duration(event["seconds_low"]), duration(event["seconds_high"])
    return (
        f"{count(event['parameters'])} parameters · {count(event['steps'])} steps of about "
        f"{count(event['tokens_per_step'])} target tokens",
        f"{speed} · {size(event['peak_memory_bytes'])} of memory · {size(event['disk_bytes'])} of disk",
        f"about {low}" if low == high else f"between {low} and {high}",
    )
