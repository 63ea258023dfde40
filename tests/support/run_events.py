"""Events of an invented run, for tests of listeners."""

import os
from pathlib import Path
from typing import Any

from heedful.training import Event, RunLog


def start(**changes: Any) -> dict[str, Any]:
    return {"version": "0.1.0", "settings": {"run": {"metric": "bleu"}}, **changes}


def plan(**changes: Any) -> dict[str, Any]:
    values = {
        "parameters": 9_512_448,
        "steps": 6000,
        "tokens_per_step": 3830.2,
        "tokens_per_second": 3140.5,
        "peak_memory_bytes": 1_234_567_890,
        "disk_bytes": 114_000_000,
        "seconds_low": 6800.0,
        "seconds_high": 8200.0,
    }
    return {**values, **changes}


def step(number: int = 1250, **changes: Any) -> dict[str, Any]:
    values = {
        "step": number,
        "steps": 10_000,
        "loss": 4.3125,
        "tokens_per_second": 3140.2,
        "lr": 3.125e-4,
        "grad_norm": 0.84,
        "epoch": 1,
        "seconds": 3012.0,
        "seconds_left": 21_084.0,
        "tokens": 5_000_000,
    }
    return {**values, **changes}


def validation(number: int = 2000, **changes: Any) -> dict[str, Any]:
    sample = {
        "source": "A dog runs.",
        "reference": "Ein Hund rennt.",
        "hypothesis": "Ein Hund läuft.",
        "before": "Ein Mann läuft.",
    }
    values = {
        "step": number,
        "loss": 3.1,
        "perplexity": 22.198,
        "bleu": 12.313,
        "chrf": 38.2,
        "score": 12.313,
        "best": True,
        "best_score": 12.313,
        "best_step": number,
        "validations_since_best": 0,
        "patience": 5,
        "seconds": 12.3,
        "samples": [sample],
    }
    return {**values, **changes}


def saved(number: int = 2000) -> dict[str, Any]:
    return {"step": number, "folder": f"run/checkpoints/step-{number:06d}", "bytes": 114_000_000, "seconds": 0.93}


def stop(**changes: Any) -> dict[str, Any]:
    return {"reason": "all 10,000 steps are done", "step": 10_000, "seconds": 7201.0, "tokens": 41_000_000, **changes}


def as_event(kind: str, **values: Any) -> Event:
    """Return the event as a listener gets it."""
    heard: list[Event] = []
    with RunLog(Path(os.devnull), [heard.append], clock=lambda: 0.0) as log:
        log.emit(kind, **values)
    return heard[0]
