"""What a run will take, measured before its first step: speed, memory at its longest batch, time, disk."""

import resource
import sys
import time
from typing import Any

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.loader import Loader
from heedful.training.checkpoint import State
from heedful.training.loop import backward_through
from heedful.training.session import Session

SECONDS = 3.0  # spent on measuring the speed, at least
SPREAD = 0.25  # how far the time may be off, one way or the other: machines are shared, sentences differ


def make_plan(session: Session, state: State) -> dict[str, Any]:
    """Trial passes, forward and backward, without an update: the run starts as if they had not been."""
    run, model = session.settings.run, session.model
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    longest, ordinary = _trial_batches(session)
    _pass(session, longest)  # also warms up
    peak = _peak_memory(session) + 8 * n_parameters  # and the optimiser's two numbers for each, not there yet
    speeds: list[float] = []
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS or len(speeds) < 3:
        batch = ordinary[len(speeds) % len(ordinary)]
        before = time.perf_counter()
        _pass(session, batch)
        speeds.append(batch.n_target_tokens / (time.perf_counter() - before))
    speed = float(np.median(speeds)) * session.world.size
    tokens_per_step = float(np.mean([batch.n_target_tokens for batch in ordinary])) * session.world.size
    seconds = (run.steps - state.step) * tokens_per_step / speed
    limit = float("inf") if run.minutes is None else run.minutes * 60
    n_kept = max(run.keep_last, run.average) + run.keep_best + 1
    return {
        "parameters": n_parameters,
        "steps": run.steps,
        "tokens_per_step": tokens_per_step,
        "tokens_per_second": speed,
        "peak_memory_bytes": peak,
        "seconds_low": min(seconds * (1 - SPREAD), limit),
        "seconds_high": min(seconds * (1 + SPREAD), limit),
        "disk_bytes": n_parameters * (12 * n_kept + 4 * 3),  # weights and two moments; best, last, average
    }


def _trial_batches(session: Session) -> tuple[Batch, list[Batch]]:
    """The batch with the longest rows, and a few as they come; the run's own loader is not touched."""
    loader = session.training.batches
    assert isinstance(loader, Loader)
    dataset, plan = loader.dataset, loader._plan
    lengths = [int(dataset.target_lengths[plan[i]].max()) for i in range(len(plan))]
    chosen = [int(np.argmax(lengths)), *np.linspace(0, len(plan) - 1, min(8, len(plan))).astype(int).tolist()]
    batches = [loader._make(plan[i], seed=0) for i in chosen]
    return batches[0], batches[1:]


def _pass(session: Session, batch: Batch) -> None:
    n_tokens = max(1, batch.n_target_tokens)
    backward_through(session.training, batch, 0, n_tokens)
    session.training.optimiser.zero_grad()
    if session.world.device.type == "cuda":
        torch.cuda.synchronize()


def _peak_memory(session: Session) -> int:
    if session.world.device.type == "cuda":
        return torch.cuda.max_memory_allocated(session.world.device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
