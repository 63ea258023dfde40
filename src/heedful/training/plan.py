"""The plan of a run, measured before its first step: speed, memory, time and disk space."""

from typing import Any

import numpy as np

from heedful.formatting import duration
from heedful.training.distributed import broadcast_from_rank0
from heedful.training.runtime import peak_memory
from heedful.training.settings import RunSettings
from heedful.training.trainer import Trainer

SECONDS = 3.0  # spent on measuring the speed, at least
FALLING = ("linear", "cosine")  # schedules whose rate falls to schedule.final_lr at the last step
SPREAD = 0.25  # how far the time may be off in either direction: machines are shared, and sentences differ


def make_plan(trainer: Trainer) -> dict[str, Any]:
    """Return the fields of the `plan` event, measured in trial passes that leave model and data as they were."""
    run, state = trainer.settings.run, trainer.state
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    longest, spaced = trainer.loader.trial_batches()
    trainer.trial_pass(longest)  # also warms up
    first_speed = trainer.trial_pass(spaced[0])
    # All ranks must make the same number of passes: each pass exchanges gradients.
    n_passes = broadcast_from_rank0(
        trainer.world, int(min(50, max(3, SECONDS * first_speed / max(1, spaced[0].n_target_tokens))))
    )
    speeds = [trainer.trial_pass(spaced[i % len(spaced)]) for i in range(n_passes)]
    # The optimiser's moments and the average of the weights do not exist yet.
    peak = peak_memory(trainer.world.device) + n_parameters * (checkpoint_bytes(run) - weight_bytes(run))
    speed = float(np.median(speeds)) * trainer.world.size
    tokens_per_step = float(np.mean([batch.n_target_tokens for batch in spaced])) * trainer.world.size
    seconds = (run.steps - state.step) * tokens_per_step / speed
    limit = float("inf") if run.minutes is None else run.minutes * 60
    if seconds > limit and trainer.settings.schedule.kind in FALLING:
        _note_short_time(trainer, state.step + int((run.steps - state.step) * limit / seconds), limit)
    n_kept = max(run.keep_last, run.average) + run.keep_best + 1  # and one more while it is written
    return {
        "parameters": n_parameters,
        "steps": run.steps,
        "tokens_per_step": tokens_per_step,
        "tokens_per_second": speed,
        "peak_memory_bytes": peak,
        "seconds_low": min(seconds * (1 - SPREAD), limit),
        "seconds_high": min(seconds * (1 + SPREAD), limit),
        "disk_bytes": n_parameters * (checkpoint_bytes(run) * n_kept + weight_bytes(run) * 3),  # best, last, average
        "patience": run.patience,
        "validate_every": run.validate_every,
    }


def weight_bytes(run: RunSettings) -> int:
    """Return the number of bytes of one weight; the weights of a bfloat16 run are float32."""
    return 8 if run.precision == "float64" else 4


def checkpoint_bytes(run: RunSettings) -> int:
    """Return the bytes of a checkpoint for each weight: itself, two moments and, with run.ema, its average."""
    return weight_bytes(run) * (4 if run.ema > 0.0 else 3)


def _note_short_time(trainer: Trainer, n_steps: int, limit: float) -> None:
    trainer.emit(
        "note",
        text=f"{duration(limit)} are enough for about {n_steps:,} of {trainer.settings.run.steps:,} steps, but the "
        "learning rate falls over all of them. Stopping before its end gives a worse model than a shorter schedule: "
        f"--set run.steps={max(1, n_steps)}",
    )
