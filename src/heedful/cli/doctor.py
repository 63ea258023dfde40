"""How fast this machine computes, measured in about a second: the numbers that decide how long a training takes.

`heedful doctor`: what this machine has, how fast it is, and what that means for heedful.
"""

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.system_info import Extra, Machine, Torch, describe_machine, describe_torch, extras

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


BUSY = 0.4  # of all cores, by the system's own count
UNSTEADY = 0.3  # the median run slower than the best by more: somebody else had the core
HARDLY = 1.2  # times as fast as one thread: a second core of its own would give nearly 2
FULL = 10**9  # bytes of disk: less is soon filled by checkpoints


@dataclass(frozen=True)
class Report:
    machine: Machine
    torch: Torch | None
    extras: list[Extra]
    speed: list[Speed]  # with one thread, then with all
    warnings: list[str]
    advice: list[str]


def doctor(*, json: bool = False) -> None:
    """Say what this machine has: torch, threads, devices, optional parts, measured speed.

    Takes some seconds, most of them for loading torch. Put its output into a bug report.

    Parameters
    ----------
    json
        Print one JSON object, for programs.
    """
    report = _examine_while_waiting(describe_machine(Path.cwd()))
    if json:
        print(dumps(dataclasses.asdict(report), indent=2))
    elif sys.stdout.isatty():
        _show(report)
    else:
        for label, text in lines(report):
            print(f"{label:<16}{text}".rstrip())


def examine(machine: Machine) -> Report:
    """Look at everything else; a torch that cannot be loaded is a finding, not a failure."""
    torch: Torch | None = None
    speed: list[Speed] = []
    warnings = list(_warnings_of(machine))
    try:
        torch = describe_torch()
    except (ImportError, OSError) as error:  # OSError: one of its shared libraries is missing
        warnings.append(f"torch cannot be loaded, so heedful can neither train nor run models: {error}")
    else:
        speed = measure(threads=torch.threads, memory_free=machine.memory_free_bytes)
        warnings += _warnings_of_torch(torch, speed, usable_cores=machine.usable_cores)
    return Report(
        machine=machine,
        torch=torch,
        extras=extras(),
        speed=speed,
        warnings=warnings,
        advice=list(_advice(torch, speed)),
    )


def _warnings_of(machine: Machine) -> Iterator[str]:
    if machine.load is not None and machine.load > BUSY * machine.cores:
        yield (
            f"other programs are running (load {machine.load:.1f} on {_count(machine.cores, 'core')}): "
            "the measured speeds are lower than this machine can do"
        )
    if machine.disk_free_bytes < FULL:
        yield f"the disk is nearly full: {_bytes(machine.disk_free_bytes)} free in {machine.folder}"
    if machine.output_encoding.lower().replace("-", "") != "utf8":
        yield (
            f"text is written in {machine.output_encoding}, which cannot hold every language: "
            "set the environment variable PYTHONUTF8=1"
        )


def _warnings_of_torch(torch: Torch, speed: list[Speed], *, usable_cores: float) -> Iterator[str]:
    cores = math.ceil(usable_cores)
    one, most = speed[0], speed[-1]
    spread = max(rate.spread for row in speed for rate in (row.fp32_gflop_per_s, row.bf16_gflop_per_s))
    if torch.threads > cores:
        yield (
            f"torch starts {torch.threads} threads, but only {_count(cores, 'core')} may be used, which slows it down: "
            f"set the environment variable OMP_NUM_THREADS={cores}"
        )
    elif most.threads > 1 and most.fp32_gflop_per_s.best < HARDLY * one.fp32_gflop_per_s.best:
        yield (
            f"{most.threads} threads are hardly faster than one, or slower: another program seems to take a core. "
            "While it runs, several programs with one thread each (OMP_NUM_THREADS=1) do more than one with all"
        )
    elif spread > UNSTEADY:
        yield (
            f"the speed changed by {spread:.0%} while it was measured: another program seems to take the processor. "
            "Close it and run `heedful doctor` again"
        )


def _advice(torch: Torch | None, speed: list[Speed]) -> Iterator[str]:
    """What heedful does differently on this machine: only what was measured."""
    if torch is None or torch.devices:  # the processor was measured, but a GPU would do the work
        return
    with_all = speed[-1]
    faster = with_all.bf16_gflop_per_s.best / with_all.fp32_gflop_per_s.best
    if torch.bf16:
        yield f"the processor multiplies in bf16 ({faster:.1f} times as fast as in fp32): heedful trains with it"
    elif faster < 1:
        yield f"bf16 is slower than fp32 here ({1 / faster:.1f} times): heedful trains in fp32"


def lines(report: Report) -> Iterator[tuple[str, str]]:
    """The report as label and text; a label without a text is a heading."""
    machine, torch = report.machine, report.torch
    yield "heedful", f"{machine.heedful}, Python {machine.python}, {machine.system}"
    yield "processor", f"{machine.processor}, {machine.usable_cores:g} of {_count(machine.cores, 'core')} usable"
    yield "memory", f"{_bytes(machine.memory_free_bytes)} free of {_bytes(machine.memory_total_bytes)}"
    yield "disk", f"{_bytes(machine.disk_free_bytes)} free in {machine.folder}"
    yield "text", f"locale {machine.locale}, output in {machine.output_encoding}"
    if torch is not None:
        onednn = "with oneDNN" if torch.onednn else "without oneDNN"
        threads = _count(torch.threads, "thread")
        yield "torch", f"{torch.version}, {threads}, BLAS {torch.blas}, {onednn}, {torch.instructions}"
        yield "devices", "only the processor, no GPU" if not torch.devices else ""
        for device in torch.devices:
            memory = "" if device.memory_total_bytes is None else f", {_bytes(device.memory_total_bytes)}"
            yield f"  {device.name}", f"{device.model}{memory}, {'bf16' if device.bf16 else 'no bf16'}"
    if report.speed:
        yield "measured", ""
        for label, unit, rates in _speeds(report.speed):
            yield f"  {label}", ", ".join(f"{_rate(rates[n])} {unit} with {_count(n, 'thread')}" for n in rates)
    yield "optional parts", "" if report.extras else "not known: heedful runs without being installed"
    for extra in report.extras:
        installed = ", ".join(f"{package} {version}" for package, version in extra.installed.items())
        yield f"  {extra.name}", f"needs {', '.join(extra.missing)}: {extra.install}" if extra.missing else installed
    for words in report.warnings:
        yield "warning", words
    for words in report.advice:
        yield "therefore", words


def _speeds(speed: list[Speed]) -> Iterator[tuple[str, str, dict[int, Rate]]]:
    yield "fp32 product", "GFLOP/s", {row.threads: row.fp32_gflop_per_s for row in speed}
    yield "bf16 product", "GFLOP/s", {row.threads: row.bf16_gflop_per_s for row in speed}
    yield "memory read", "GB/s", {row.threads: row.memory_gb_per_s for row in speed}


def _examine_while_waiting(machine: Machine) -> Report:
    from rich.console import Console

    with Console(stderr=True).status("loading torch and measuring …"):  # shown only where somebody can see it
        return examine(machine)


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for label, text in lines(report):
        style = {"warning": "yellow", "therefore": "green"}.get(label, "")
        table.add_row(Text(label, style=style or "bold cyan"), Text(text, style=style))
    Console().print(table)


def _rate(rate: Rate) -> str:
    return f"{rate.best:.0f}" if rate.best >= 10 else f"{rate.best:.1f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _bytes(number: int | None) -> str:
    if number is None:
        return "an unknown amount"
    return f"{number / 1e9:.1f} GB" if number < 100e9 else f"{number / 1e9:.0f} GB"
