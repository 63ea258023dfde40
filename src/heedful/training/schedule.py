"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from heedful.errors import UserError


@dataclass(frozen=True)
class ScheduleSettings:
    kind: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    warmup_steps: int = 4000  # the rate grows linearly up to here
    final_lr: float = 0.0  # where cosine and linear end, at the last step

    def __post_init__(self) -> None:
        for name in ("warmup_steps", "final_lr"):
            if getattr(self, name) < 0:
                raise UserError(f"'schedule.{name}' must not be negative, found {getattr(self, name)}")


def learning_rate(step: int, *, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    """The rate of update number `step`, counted from 0. The peak is reached at the end of the warm-up."""
    warmup = schedule.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    return SHAPES[schedule.kind](step, peak, steps, schedule)


def _inverse_sqrt(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    """Section 5.3 of the paper; its peak is d_model^-0.5 x warmup_steps^-0.5."""
    return peak * math.sqrt(max(schedule.warmup_steps, 1) / (step + 1))


def _cosine(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    done = _done(step, steps, schedule.warmup_steps)
    return schedule.final_lr + (peak - schedule.final_lr) * (1 + math.cos(math.pi * done)) / 2


def _linear(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    return peak + (schedule.final_lr - peak) * _done(step, steps, schedule.warmup_steps)


def _constant(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    return peak


def _done(step: int, steps: int, warmup: int) -> float:
    """How much of the way from the end of the warm-up to the last step lies behind, 0 to 1."""
    return min(1.0, max(0.0, (step - warmup) / max(1, steps - warmup)))


SHAPES: dict[str, Callable[[int, float, int, ScheduleSettings], float]] = {
    "inverse_sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "linear": _linear,
    "constant": _constant,
}
