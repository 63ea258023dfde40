"""Measure what restricted attention saves: time and memory of one multi-head layer as the input grows.

    python benchmarks/speed/patterns.py  # lengths 1k to 16k, one thread: about ten minutes
    python benchmarks/speed/patterns.py --threads 1 2 --json patterns.json --plot patterns.svg
    python benchmarks/speed/patterns.py --quick --patterns window  # a short test that it runs

Each case, forward and backward, runs in its own process. Time is the median of several runs; with one thread it is CPU
time, which other programs hardly change. Memory is the growth of the process's highest resident set in the first run,
after a tiny run has loaded all code: the memory that the system had to provide, including the allocator's waste. The
tables end with exponents: 1 = the cost grows with the length, 2 = with its square.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.system_info import memory, processor

sys.path.insert(0, str(Path(__file__).parents[1]))  # to import benchmarks/plots
from plots.chart import Line, growth_chart

if TYPE_CHECKING:  # only the child processes import torch
    from torch import Tensor

    from heedful.nn.attention import Attend, MultiHeadAttention

D_MODEL, N_HEADS, SPAN = 256, 4, 64
QUIET = 0.95  # share of its cores below which a case counts as disturbed by other programs
LENGTHS, QUICK = (1024, 2048, 4096, 8192, 16384), (512, 1024, 2048)
NAMES = {
    "formula": "full, by the formula (`attend`)",
    "full": "full, fused (`attend_fused`)",
    "top_k": f"top-k, the {SPAN} highest scores",
    "strided": f"strided, every {SPAN}th",
    "sparse": f"sparse, blocks of {SPAN}, 1 global",
    "dilated": "dilated, 1, 2, 4, … away",
    "local": f"local, {SPAN} to each side",
    "window": f"window, blocks of {SPAN}",
}
# These two store several T x T matrices for each head, so memory limits their length.
LONGEST = {"formula": 8192, "top_k": 4096}


@dataclass(frozen=True)
class Case:
    name: str
    length: int
    threads: int
    repeats: int


@dataclass(frozen=True)
class Measured:
    name: str
    length: int
    threads: int
    seconds: float  # median; CPU time with one thread, elapsed time with several
    fastest: float
    slowest: float
    share: float  # of the cores that it could use; below one if other programs were running
    megabytes: float  # in addition to what the process held before
    kernels: list[str]  # PyTorch's fused attention kernels that were used


# ---- in the child process


def attend_function(name: str) -> "Attend":
    from heedful.nn.attention import attend, attend_fused
    from heedful.nn.sparse_attention import PATTERNS, PatternAttention, TopKAttention

    if name in PATTERNS:
        return PatternAttention(PATTERNS[name](SPAN))
    full: dict[str, Attend] = {"formula": attend, "full": attend_fused, "top_k": TopKAttention(SPAN)}
    return full[name]


def forward_and_backward(layer: "MultiHeadAttention", length: int) -> Callable[[], None]:
    import torch

    x = torch.randn(1, length, D_MODEL, requires_grad=True)
    gradient = torch.randn(1, length, D_MODEL)

    def run() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x).backward(gradient)

    return run


def measure(case: Case) -> Measured:
    import torch

    from heedful.nn.attention import MultiHeadAttention

    torch.manual_seed(0)
    torch.set_num_threads(case.threads)
    layer = MultiHeadAttention(d_model=D_MODEL, n_heads=N_HEADS, attend=attend_function(case.name))
    run = forward_and_backward(layer, case.length)
    forward_and_backward(layer, min(case.length, 4 * SPAN))()  # loads the libraries' code and buffers
    before = highest_resident_megabytes()
    run()
    megabytes = highest_resident_megabytes() - before
    clock, cpu = zip(*(timed(run) for _ in range(case.repeats)), strict=True)
    seconds = cpu if case.threads == 1 else clock
    return Measured(
        name=case.name,
        length=case.length,
        threads=case.threads,
        seconds=statistics.median(seconds),
        fastest=min(seconds),
        slowest=max(seconds),
        share=sum(cpu) / sum(clock) / case.threads,
        megabytes=megabytes,
        kernels=kernels_of(layer(torch.randn(1, case.length, D_MODEL))),
    )


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Return the elapsed seconds and the CPU seconds of all cores."""
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


def highest_resident_megabytes() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would begin with the parent's value
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest / (1e6 if sys.platform == "darwin" else 1e6 / 1024)  # macOS reports bytes, other systems kibibytes


def kernels_of(output: "Tensor") -> list[str]:
    """Find PyTorch's fused attention kernels behind a result by the names of its backward nodes."""
    names, stack = set(), [output.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None:
            names.add(node.name())
            stack += [inner for inner, _ in node.next_functions]
    return sorted(name.removesuffix("Backward0") for name in names if name.startswith("ScaledDotProduct"))


# ---- in the parent process


def measure_apart(case: Case) -> Measured | None:
    """Measure a case in a new process; return None if the system killed it because memory ran out."""
    child = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(asdict(case))],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": str(case.threads)},
    )
    if child.returncode == -9:
        print(f"{case.name} at {case.length:,}: killed by the system, out of memory", file=sys.stderr)
        return None
    child.check_returncode()
    return Measured(**json.loads(child.stdout))


def exponent(lengths: list[int], costs: list[float]) -> float | None:
    """Return e in cost = c * length^e: the slope of a line through the last three points on a log-log scale."""
    points = [(n, cost) for n, cost in zip(lengths, costs, strict=True) if cost > 0][-3:]
    if len(points) < 3:
        return None
    x, y = [math.log(n) for n, _ in points], [math.log(cost) for _, cost in points]
    return statistics.linear_regression(x, y).slope


def table(measured: list[Measured], *, cost: str, unit: str, factor: float) -> str:
    """Return a Markdown table with a row for each pattern and a column for each length."""
    lengths = sorted({row.length for row in measured})
    header = f"| {unit} | " + " | ".join(f"{n:,}" for n in lengths) + " | exponent |"
    lines = [header, "|---|" + "---:|" * (len(lengths) + 1)]
    for name in NAMES:
        rows = {row.length: float(getattr(row, cost)) for row in measured if row.name == name}
        if rows:
            cells = [_number(rows[n] * factor) if n in rows else "" for n in lengths]
            slope = exponent(list(rows), list(rows.values()))
            cells.append("" if slope is None else f"{slope:.2f}")
            lines.append(f"| {NAMES[name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(about: dict[str, object], measured: list[Measured]) -> str:
    parts = [", ".join(f"{name}: {value}" for name, value in about.items()) + "."]
    for threads in sorted({row.threads for row in measured}):
        rows = [row for row in measured if row.threads == threads]
        threads_text = "one thread" if threads == 1 else f"{threads} threads"
        parts += [f"With {threads_text}:", table(rows, cost="seconds", unit="milliseconds", factor=1e3)]
        parts += [table(rows, cost="megabytes", unit="megabytes", factor=1)]
        share = min(row.share for row in rows)
        if share < QUIET:
            parts += [f"Other programs were running: a case got as little as {share:.0%} of its cores."]
    return "\n\n".join(parts) + "\n"


def machine() -> dict[str, object]:
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory in GB": round((memory()[0] or 0) / 1e9),
        "load before": round(os.getloadavg()[0], 2),
        "torch": version("torch"),
        "date": date.today().isoformat(),
    }


def draw(measured: list[Measured]) -> str:
    threads = min(row.threads for row in measured)
    threads_text = "one thread" if threads == 1 else f"{threads} threads"
    rows = [row for row in measured if row.threads == threads]
    lines = [
        Line(
            name,
            [row.length for row in rows if row.name == name],
            {
                f"time, ms ({threads_text})": [row.seconds * 1e3 for row in rows if row.name == name],
                "extra memory, MB": [row.megabytes for row in rows if row.name == name],
            },
        )
        for name in NAMES
        if any(row.name == name for row in rows)
    ]
    return growth_chart(f"One attention layer, forward and backward, span {SPAN}", "length", lines)


def replace_between(document: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between two markers of a document."""
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    _, end_found, after = rest.partition(end)
    if not end_found:
        raise SystemExit(f"{document}: contains no {begin.strip()} with {end} after it")
    document.write_text(before + begin + text + end + after, encoding="utf-8")


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 10 else f"{x:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--patterns", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME", help="patterns to measure"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--repeats", type=int, default=5, help="runs per case; the median counts (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw time and memory over the length")
    parser.add_argument(
        "--document", type=Path, metavar="FILE.md", help="replace the tables between the markers of this page"
    )
    parser.add_argument("--quick", action="store_true", help="short lengths: tests that it runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asdict(measure(Case(**json.loads(options.child))))))
        return
    about = machine()
    measured = []
    for threads in options.threads:
        for name in options.patterns:
            for length in QUICK if options.quick else LENGTHS:
                if length <= LONGEST.get(name, length):
                    print(f"{name} at {length:,} with {threads}", file=sys.stderr)
                    measured.append(measure_apart(Case(name, length, threads, options.repeats)))
    rows = [row for row in measured if row is not None]
    text = report(about, rows)
    print(text)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": about, "measured": [asdict(row) for row in rows]}, indent=1) + "\n"
        )
    if options.plot:
        options.plot.write_text(draw(rows), encoding="utf-8")
    if options.document:
        replace_between(options.document, "<!-- patterns: begin -->\n", "<!-- patterns: end -->", f"\n{text}\n")


if __name__ == "__main__":
    main()
