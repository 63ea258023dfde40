"""Measure the time of one sentence from the command to the answer, with the built-in model.

    python benchmarks/speed/latency.py --runs 9 --json latency.json

Each command is measured twice: its first call with an empty cache, as right after installation, which converts the
model into the cache; and a later call. The table shows the median and range of the elapsed time, and the CPU time of
the command and its children, which other programs affect less. Bytecode is compiled already, as after `pip install`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from heedful.cli.system_info import processor
from watch import busy_cores

SENTENCE = "I don't know where she lives."
# command -> (its arguments, standard input)
COMMANDS: dict[str, tuple[list[str], str]] = {
    "translate": (["--to", "fr"], f"{SENTENCE}\n"),
    "look": ([SENTENCE], ""),
}


@dataclass
class Case:
    command: str
    call: str
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)  # CPU seconds

    def row(self) -> str:
        low, middle, high = min(self.seconds), statistics.median(self.seconds), max(self.seconds)
        cpu = statistics.median(self.processor)
        return f"| `heedful {self.command}` | {self.call} | {middle:.2f} [{low:.2f}–{high:.2f}] | {cpu:.2f} |"


def call(case: Case, cache: Path) -> None:
    """Run the command once and add its times to the case."""
    args, stdin = COMMANDS[case.command]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-m", "heedful", case.command, *args],
        input=stdin,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0 or not process.stdout.strip():
        command = f"heedful {case.command} {' '.join(args)}"
        sys.exit(f"{command} ended with exit code {process.returncode}: {process.stderr[-2000:]}")
    case.seconds.append(seconds)
    case.processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(commands: list[str], n_runs: int) -> list[Case]:
    cases = []
    for command in commands:
        first, later = Case(command, "first"), Case(command, "later")
        for run in range(n_runs + 1):
            with tempfile.TemporaryDirectory(prefix="heedful-latency-") as cache:
                call(first, Path(cache))
                call(later, Path(cache))
            if run == 0:  # a warm-up: it reads files from the disk and compiles bytecode
                first, later = Case(command, "first"), Case(command, "later")
        cases += [first, later]
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=9, help="calls to measure (default: 9)")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    busy = busy_cores(1.0)
    print(f"{processor()}, {os.cpu_count()} cores, {busy:.2f} of them busy before the start\n", flush=True)
    cases = measure(options.commands, options.runs)
    print("| command | call | seconds | CPU seconds |\n|---|---|---|---|")
    print("\n".join(case.row() for case in cases))
    if options.json:
        machine = {"processor": processor(), "cores": os.cpu_count(), "busy": busy}
        values = {"machine": machine, "sentence": SENTENCE, "cases": [asdict(case) for case in cases]}
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
