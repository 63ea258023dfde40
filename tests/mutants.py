"""Do the tests notice? Plant one bug after the other in a copy of the source, and see some test turn red each time.

    python tests/mutants.py [--list] [--only WORDS]      WORDS: a part of the name or file of a mutant

First the tests run on an unchanged copy and must pass. Exit 1 if a bug survives, breaks more than a test, or no longer
fits the source.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutant_table import MUTANTS, Mutant

PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src"
TIMEOUT = 900  # seconds, on a machine with other work: a bug that hangs is not one that a test caught

# The tests must import the copy: the installed package would pass them all.
GUARD = """
import sys, heedful, pytest
if not heedful.__file__.startswith(sys.argv[1]):
    sys.exit(f"imported {heedful.__file__}, not the copy below {sys.argv[1]}")
sys.exit(int(pytest.main(sys.argv[2:])) + 100)
"""
PASSED, FAILED = 100, 101  # pytest's 0 and 1, told apart from Python's own


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    caught: bool
    words: str  # the test that caught it, or what happened instead
    seconds: float


def fits(mutant: Mutant) -> bool:
    return (SOURCE / "heedful" / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1


def planted(mutant: Mutant, text: str) -> str:
    return text.replace(mutant.old, mutant.new)


def run_tests(source: Path, tests: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    pytest = ["-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *options, *(f"tests/{name}" for name in tests)]
    return subprocess.run(
        [sys.executable, "-c", GUARD, str(source), *pytest],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


def copy_source(folder: str) -> Path:
    return Path(
        shutil.copytree(SOURCE, Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    )


def check_unchanged(mutants: list[Mutant]) -> bool:
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    print(f"the unchanged source: {len(tests)} test files", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ran = run_tests(copy_source(folder), tests, "-n", "2")
    if ran.returncode != PASSED:
        print(ran.stdout[-4000:], ran.stderr[-2000:], "the tests fail without any planted bug", sep="\n")
    return ran.returncode == PASSED


def try_mutant(mutant: Mutant) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = copy_source(folder)
        path = source / "heedful" / mutant.file
        path.write_text(planted(mutant, path.read_text(encoding="utf-8")), encoding="utf-8")
        try:
            ran = run_tests(source, list(mutant.tests), "-x")
        except subprocess.TimeoutExpired:
            return Outcome(mutant, False, f"no end after {TIMEOUT} s", time.monotonic() - began)
    failed = re.search(r"^FAILED tests/(.+?)( - .*)?$", ran.stdout, re.MULTILINE)
    if ran.returncode == FAILED and failed:
        return Outcome(mutant, True, failed[1], time.monotonic() - began)
    happened = "SURVIVED" if ran.returncode == PASSED else f"no test failed, but: {(ran.stdout + ran.stderr)[-500:]}"
    return Outcome(mutant, False, happened, time.monotonic() - began)


def show(outcome: Outcome) -> None:
    mark = "caught" if outcome.caught else "MISSED"
    print(
        f"{mark}  {outcome.mutant.file:20} {outcome.mutant.name:68} {outcome.seconds:4.0f} s  {outcome.words}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show the mutants and stop")
    parser.add_argument("--only", default="", metavar="WORDS", help="those whose name or file contains this")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in f"{mutant.file} {mutant.name}"]
    if options.list or not mutants:
        print(*(f"{mutant.file:20} {mutant.name}" for mutant in mutants), sep="\n")
        return 0 if mutants else 1
    unfit = [mutant for mutant in mutants if not fits(mutant)]
    for mutant in unfit:
        print(f"{mutant.file}: {mutant.name}: the text to change no longer stands there exactly once: {mutant.old!r}")
    if unfit or not check_unchanged(mutants):
        return 1
    outcomes = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for outcome in pool.map(try_mutant, mutants):
            show(outcome)
            outcomes.append(outcome)
    n_caught = sum(outcome.caught for outcome in outcomes)
    print(f"{n_caught} of {len(outcomes)} planted bugs were caught")
    return 0 if n_caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
