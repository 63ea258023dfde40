"""What a run will take, measured before its first step: speed, memory at its longest batch, time, disk."""

import time
from typing import Any

import numpy as np
import torch

from heedful.data.collate import TensorBatch
from heedful.training.checkpoint import State
from heedful.training.distributed import broadcast_from_rank0
from heedful.training.runtime import peak_memory
from heedful.training.settings import RunSettings
from heedful.training.trainer import Session, backward_through

SECONDS = 3.0  # spent on measuring the speed, at least
FALLING = ("linear", "cosine")  # schedules that end at a rate of nothing
SPREAD = 0.25  # how far the time may be off, one way or the other: machines are shared, sentences differ


def make_plan(session: Session, state: State) -> dict[str, Any]:
    """Trial passes, forward and backward, without an update: the run starts as if they had not been."""
    run, model = session.settings.run, session.model
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    longest, ordinary = session.training.batches.trial_batches()
    _pass(session, longest)  # also warms up
    first = _speed(session, ordinary[0])
    # All ranks must make as many passes: each exchanges gradients.
    n_passes = broadcast_from_rank0(
        session.world, int(min(50, max(3, SECONDS * first / max(1, ordinary[0].n_target_tokens))))
    )
    speeds = [_speed(session, ordinary[i % len(ordinary)]) for i in range(n_passes)]
    # What the optimiser and the running average remember is not there yet.
    peak = peak_memory(session.world.device) + n_parameters * (saved_bytes(run) - number_bytes(run))
    speed = float(np.median(speeds)) * session.world.size
    tokens_per_step = float(np.mean([batch.n_target_tokens for batch in ordinary])) * session.world.size
    seconds = (run.steps - state.step) * tokens_per_step / speed
    limit = float("inf") if run.minutes is None else run.minutes * 60
    if seconds > limit and session.settings.schedule.kind in FALLING:
        _warn_of_rate(session, state.step + int((run.steps - state.step) * limit / seconds))
    n_kept = max(run.keep_last, run.average) + run.keep_best + 1  # and one more while it is written
    return {
        "parameters": n_parameters,
        "steps": run.steps,
        "tokens_per_step": tokens_per_step,
        "tokens_per_second": speed,
        "peak_memory_bytes": peak,
        "seconds_low": min(seconds * (1 - SPREAD), limit),
        "seconds_high": min(seconds * (1 + SPREAD), limit),
        "disk_bytes": n_parameters * (saved_bytes(run) * n_kept + number_bytes(run) * 3),  # best, last, average
    }


def number_bytes(run: RunSettings) -> int:
    """Of one number of the model; in a run of bfloat16 too the weights are float32."""
    return 8 if run.precision == "float64" else 4


def saved_bytes(run: RunSettings) -> int:
    """What a checkpoint holds for each parameter: itself, its two moments, and its running average if there is one."""
    return number_bytes(run) * (4 if run.ema > 0.0 else 3)


def _warn_of_rate(session: Session, n_steps: int) -> None:
    run = session.settings.run
    session.emit(
        "note",
        text=f"{run.minutes:g} minutes are enough for about {n_steps:,} of {run.steps:,} steps, and the learning rate "
        "is made to come down over all of them: a model that is stopped on the way is worse than one of a shorter "
        f"schedule (--set run.steps={max(1, n_steps)} gives one)",
    )


def choose_threads(session: Session) -> int:
    """One thread or one for each core, whichever is faster now.

    With two threads and one other busy process on two cores, each waits for the other at every operation: training then
    takes twenty times as long as with one thread. On a quiet machine all cores win.
    """
    most = torch.get_num_threads()
    _, ordinary = session.training.batches.trial_batches()
    speeds = {}
    for threads in (most, 1):
        torch.set_num_threads(threads)
        _pass(session, ordinary[0])  # threads start, memory is taken
        speeds[threads] = max(_speed(session, ordinary[i % len(ordinary)]) for i in range(3))
    best = max(speeds, key=lambda threads: speeds[threads])
    torch.set_num_threads(best)
    if best < most:
        session.emit(
            "note",
            text=f"one thread, not {most}: the machine is busy, and one alone is {speeds[1] / speeds[most]:.1f} times "
            "as fast as all together (--set run.threads=… decides otherwise)",
        )
    return best


def _speed(session: Session, batch: TensorBatch) -> float:
    """Target tokens in a second, forward and backward."""
    started = time.perf_counter()
    _pass(session, batch)
    return max(1, batch.n_target_tokens) / (time.perf_counter() - started)


def _pass(session: Session, batch: TensorBatch) -> None:
    n_tokens = max(1, batch.n_target_tokens)
    before = [buffer.clone() for buffer in session.model.buffers()]  # the running statistics of a batch norm move
    backward_through(session.training, batch, 0, n_tokens)
    session.training.optimiser.zero_grad()
    for buffer, value in zip(session.model.buffers(), before, strict=True):
        buffer.copy_(value)
    if session.world.device.type == "cuda":
        torch.cuda.synchronize()
