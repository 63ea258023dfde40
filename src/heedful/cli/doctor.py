"""`heedful doctor`: report what this machine has, how fast it computes, and what that means for heedful."""

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

from heedful.cli.options import Json
from heedful.cli.system_info import Extra, Machine, Torch, describe_machine, describe_torch, extras

if TYPE_CHECKING:
    import torch

SIZE = 768  # of square matrices to multiply: large enough to fill a core, small enough for its cache
SECONDS = 0.1  # for each measurement
MEMORY = 2**28  # bytes to read: more than the cache of an ordinary machine

BUSY = 0.4  # load, as a share of the cores, above which other programs disturb the measurement
UNSTEADY = 0.3  # spread of a measurement above which another program seems to have taken the core
HARDLY = 1.2  # all threads are less than this much faster than one: they seem to share one core
FULL = 10**9  # free bytes of disk; fewer are soon filled by checkpoints


@dataclass(frozen=True)
class Rate:
    """A speed: the best of several runs, and by what share the median run was slower."""

    best: float
    spread: float


@dataclass(frozen=True)
class MachineSpeed:
    """The speeds of this machine with a number of threads."""

    threads: int
    fp32_gflop_per_s: Rate
    bf16_gflop_per_s: Rate
    memory_gb_per_s: Rate


@dataclass(frozen=True)
class DoctorReport:
    """Everything that `heedful doctor` found."""

    machine: Machine
    torch: Torch | None
    extras: list[Extra]
    speed: list[MachineSpeed]  # with one thread, then with all
    warnings: list[str]
    advice: list[str]


def doctor(*, json: Json = False) -> None:
    """Describe this machine: torch, threads, devices, optional parts, measured speed.

    Takes some seconds, most of them to load torch. Put its output into a bug
    report.
    """
    report = _examine_while_waiting(describe_machine(Path.cwd()))
    if json:
        print(dumps(dataclasses.asdict(report), indent=2))
    elif sys.stdout.isatty():
        _show(report)
    else:
        for label, text in lines(report):
            print(f"{label:<16}{text}".rstrip())


def examine(machine: Machine) -> DoctorReport:
    """Examine torch, the extras and the speed; a torch that cannot be loaded becomes a warning, not an error."""
    torch: Torch | None = None
    speed: list[MachineSpeed] = []
    warnings = list(_warnings_of(machine))
    try:
        torch = describe_torch()
    except (ImportError, OSError) as error:  # OSError: one of its shared libraries is missing
        warnings.append(f"torch cannot be loaded, so heedful can neither train nor run models: {error}")
    else:
        speed = measure(threads=torch.threads, memory_free=machine.memory_free_bytes)
        warnings += _warnings_of_torch(torch, speed, usable_cores=machine.usable_cores)
    return DoctorReport(
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
            "the measured speeds are lower than the machine's own"
        )
    if machine.disk_free_bytes < FULL:
        yield f"the disk is nearly full: {_bytes(machine.disk_free_bytes)} free in {machine.folder}"
    if machine.output_encoding.lower().replace("-", "") != "utf8":
        yield (
            f"text is written in {machine.output_encoding}, which cannot hold every language: "
            "set the environment variable PYTHONUTF8=1"
        )


def _warnings_of_torch(torch: Torch, speed: list[MachineSpeed], *, usable_cores: float) -> Iterator[str]:
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
            f"{most.threads} threads are hardly faster than one, or slower: another program seems to use a core. "
            "Several programs with one thread each (OMP_NUM_THREADS=1) are then faster than one with all threads"
        )
    elif spread > UNSTEADY:
        yield (
            f"the speed changed by {spread:.0%} while it was measured: another program seems to use the processor. "
            "Close it and run `heedful doctor` again"
        )


def _advice(torch: Torch | None, speed: list[MachineSpeed]) -> Iterator[str]:
    """Yield the precision in which heedful trains on this machine, and the reason."""
    if torch is None or torch.devices:  # only the processor was measured, but training would use the GPU
        return
    with_all = speed[-1]
    faster = with_all.bf16_gflop_per_s.best / with_all.fp32_gflop_per_s.best
    if torch.bf16:
        yield f"the processor multiplies in bf16 ({faster:.1f} times as fast as in fp32): heedful trains with it"
    elif faster < 1:
        yield f"bf16 is slower than fp32 here ({1 / faster:.1f} times): heedful trains in fp32"


def lines(report: DoctorReport) -> Iterator[tuple[str, str]]:
    """Iterate over the report as pairs of label and text; a label without text is a heading."""
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
    yield "optional parts", "" if report.extras else "unknown: heedful is not installed as a package"
    for extra in report.extras:
        installed = ", ".join(f"{package} {version}" for package, version in extra.installed.items())
        yield f"  {extra.name}", f"needs {', '.join(extra.missing)}: {extra.install}" if extra.missing else installed
    for text in report.warnings:
        yield "warning", text
    for text in report.advice:
        yield "therefore", text


def _speeds(speed: list[MachineSpeed]) -> Iterator[tuple[str, str, dict[int, Rate]]]:
    yield "fp32 product", "GFLOP/s", {row.threads: row.fp32_gflop_per_s for row in speed}
    yield "bf16 product", "GFLOP/s", {row.threads: row.bf16_gflop_per_s for row in speed}
    yield "memory read", "GB/s", {row.threads: row.memory_gb_per_s for row in speed}


def _examine_while_waiting(machine: Machine) -> DoctorReport:
    from rich.console import Console

    with Console(stderr=True).status("loading torch and measuring …"):  # shown in a terminal only
        return examine(machine)


def _show(report: DoctorReport) -> None:
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _bytes(number: int | None) -> str:
    if number is None:
        return "an unknown amount"
    return f"{number / 1e9:.1f} GB" if number < 100e9 else f"{number / 1e9:.0f} GB"


# The measurement of the speed.


def measure(*, threads: int, memory_free: int | None) -> list[MachineSpeed]:
    """Measure the speeds with one thread and, if there are more, with all threads; takes about a second."""
    import torch

    before = torch.get_num_threads()
    n_floats = min(MEMORY, (memory_free or MEMORY * 8) // 8) // 4
    floats = torch.ones(n_floats)
    try:
        return [_measure_with(count, floats) for count in sorted({1, threads})]
    finally:
        torch.set_num_threads(before)


def _measure_with(threads: int, floats: "torch.Tensor") -> MachineSpeed:
    import torch

    torch.set_num_threads(threads)
    return MachineSpeed(
        threads=threads,
        fp32_gflop_per_s=_rate_of_product(torch.float32),
        bf16_gflop_per_s=_rate_of_product(torch.bfloat16),
        memory_gb_per_s=rate(lambda: floats.sum(), amount=floats.nbytes / 1e9),
    )


def _rate_of_product(dtype: "torch.dtype") -> Rate:
    import torch

    left, right, product = (torch.ones(SIZE, SIZE, dtype=dtype) for _ in range(3))
    # A fresh buffer for each product would add page faults to the measured time.
    return rate(lambda: torch.mm(left, right, out=product), amount=2 * SIZE**3 / 1e9)


def rate(
    work: Callable[[], object],
    *,
    amount: float,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Rate:
    """Measure how much of `amount` is done per second, if one call of `work` does all of it."""
    work()  # the first call also starts threads, fills caches and compiles code
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = clock()
        work()
        times.append(clock() - start)
    return Rate(best=amount / min(times), spread=statistics.median(times) / min(times) - 1)
