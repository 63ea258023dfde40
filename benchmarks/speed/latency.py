"""How long one sentence takes, from the command to the answer, with the model that comes with heedful.

    python benchmarks/speed/latency.py --runs 9 --json latency.json

Each command twice over: the first call after installing, with an empty cache, into which the model is then converted,
and a later one. Median and range of the clock; beside it the processor's time of the command and its children, which
other programs hardly change. Compiled bytecode is there, as after `pip install`.
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
    processor: list[float] = field(default_factory=list)  # seconds too

    def row(self) -> str:
        low, middle, high = min(self.seconds), statistics.median(self.seconds), max(self.seconds)
        worked = statistics.median(self.processor)
        return f"| `heedful {self.command}` | {self.call} | {middle:.2f} [{low:.2f}–{high:.2f}] | {worked:.2f} |"


def call(case: Case, cache: Path) -> None:
    """Run the command once, and add how long it took."""
    arguments, given = COMMANDS[case.command]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "heedful", case.command, *arguments],
        input=given,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or not done.stdout.strip():
        sys.exit(f"heedful {case.command} {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
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
            if run == 0:  # that read the files from the disk and compiled what was not
                first, later = Case(command, "first"), Case(command, "later")
        cases += [first, later]
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    busy = busy_cores(1.0)
    print(f"{processor()}, {os.cpu_count()} cores, {busy:.2f} of them busy before the start\n", flush=True)
    cases = measure(options.commands, options.runs)
    print("| command | call | seconds | of the processor |\n|---|---|---|---|")
    print("\n".join(case.row() for case in cases))
    if options.json:
        machine = {"processor": processor(), "cores": os.cpu_count(), "busy": busy}
        values = {"machine": machine, "sentence": SENTENCE, "cases": [asdict(case) for case in cases]}
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
