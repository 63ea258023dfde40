"""How fast this machine computes, measured in about a second: the numbers that decide how long a training takes."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SIZE = 768  # of a square product: large enough to fill a core, small enough to stay in its cache
SECONDS = 0.1  # for each measurement
MEMORY = 2**28  # bytes read: more than any cache of an ordinary machine


@dataclass(frozen=True)
class Rate:
    """Something per second: the best of several runs, and how much the median run was slower."""

    best: float
    spread: float


@dataclass(frozen=True)
class Speed:
    threads: int
    fp32_gflop_per_s: Rate
    bf16_gflop_per_s: Rate
    memory_gb_per_s: Rate


def measure(*, threads: int, memory_free: int | None) -> list[Speed]:
    """The speeds with one thread and, where there are more, with all of them."""
    import torch

    before = torch.get_num_threads()
    n_floats = min(MEMORY, (memory_free or MEMORY * 8) // 8) // 4
    floats = torch.ones(n_floats)
    try:
        return [_measure_with(count, floats) for count in sorted({1, threads})]
    finally:
        torch.set_num_threads(before)


def _measure_with(threads: int, floats: "torch.Tensor") -> Speed:
    import torch

    torch.set_num_threads(threads)
    return Speed(
        threads=threads,
        fp32_gflop_per_s=_rate_of_product(torch.float32),
        bf16_gflop_per_s=_rate_of_product(torch.bfloat16),
        memory_gb_per_s=rate(lambda: floats.sum(), amount=floats.nbytes / 1e9),
    )


def _rate_of_product(dtype: "torch.dtype") -> Rate:
    import torch

    left, right, product = (torch.ones(SIZE, SIZE, dtype=dtype) for _ in range(3))
    # Into a kept buffer: a fresh one costs page faults, which are not what is measured here.
    return rate(lambda: torch.mm(left, right, out=product), amount=2 * SIZE**3 / 1e9)


def rate(
    work: Callable[[], object],
    *,
    amount: float,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Rate:
    """How much of `amount` a second does, when `work` does it once: run again and again for some time."""
    work()  # the first time pays for threads, caches and code that is made on the way
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = clock()
        work()
        times.append(clock() - start)
    return Rate(best=amount / min(times), spread=statistics.median(times) / min(times) - 1)
