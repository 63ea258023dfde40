"""Do the tests notice? Plant one bug after the other in a copy of the source, and see some test turn red each time.

    python tests/mutation/mutants.py [--list] [--only WORDS]      WORDS: a part of the name or file of a mutant

First the tests run on an unchanged copy and must pass. Exit 1 if a bug survives, breaks more than a test, or no longer
fits the source.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mutant_kind import Mutant
from mutant_table import MUTANTS

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src"
N_AT_ONCE = 2
TIMEOUT = 900  # seconds, on a machine with other work: a bug that hangs is not one that a test caught

# Each run is a process of its own, forked from one that has already imported what takes long and is not ours.
CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["torch", "numpy", "pytest", "hypothesis", "safetensors.torch", "sentencepiece"]


@dataclass(eq=False)  # pytest puts its plugins into sets
class Ran:
    """What became of the tests; also the plugin by which pytest tells it."""

    code: int = -1  # pytest's: 0 all passed, 1 some failed, more: no proper run
    failed: list[str] = field(default_factory=list)
    words: str = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.removeprefix("tests/"))


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


@contextlib.contextmanager
def copied_source() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        yield Path(shutil.copytree(SOURCE, Path(folder) / "src", ignore=ignored))


def run_tests(source: Path, tests: tuple[str, ...]) -> Ran:
    """Run test files until the first failure, with the package that lies in `source`."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_run_pytest, args=(sender, str(source), tests))
    process.start()
    sender.close()
    try:
        ran: Ran = receiver.recv() if receiver.poll(TIMEOUT) else Ran(words=f"no end after {TIMEOUT} s")
    except EOFError:
        ran = Ran(words="the process died")
    process.kill()
    process.join()
    return ran


def _run_pytest(sender: Connection, source: str, tests: tuple[str, ...]) -> None:
    os.chdir(PROJECT)
    os.environ["PYTHONPATH"] = source  # for the processes that tests start
    sys.path.insert(0, source)
    sys.dont_write_bytecode = True
    import heedful

    ran = Ran()
    if Path(heedful.__file__).is_relative_to(source):
        arguments = ["-x", "--tb=short", "-p", "no:cacheprovider", *(f"tests/{name}" for name in tests)]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            ran.code = int(pytest.main(arguments, plugins=[ran]))
        ran.words = output.getvalue()[-2000:]
    else:  # the installed package would pass all tests
        ran.words = f"imported {heedful.__file__} instead of the copy"
    sender.send(ran)


def try_unchanged(test: str) -> str:
    """What is wrong with a test file on the source as it is; nothing, if it passes."""
    with copied_source() as source:
        ran = run_tests(source, (test,))
    return "" if ran.code == 0 else f"tests/{test} fails without any planted bug:\n{ran.words}"


def try_mutant(mutant: Mutant) -> Outcome:
    began = time.monotonic()
    with copied_source() as source:
        path = source / "heedful" / mutant.file
        path.write_text(planted(mutant, path.read_text(encoding="utf-8")), encoding="utf-8")
        ran = run_tests(source, mutant.tests)
    caught = ran.code == 1 and bool(ran.failed)
    words = ran.failed[0] if caught else "it survived" if ran.code == 0 else ran.words
    return Outcome(mutant, caught, words, time.monotonic() - began)


def show(outcome: Outcome) -> None:
    mark, mutant = "caught" if outcome.caught else "MISSED", outcome.mutant
    print(f"{mark}  {mutant.file:20} {mutant.name:68} {outcome.seconds:4.0f} s  {outcome.words}", flush=True)


def plant_all(mutants: list[Mutant]) -> int:
    """The exit code: 0 when every bug was caught."""
    os.environ["OMP_NUM_THREADS"] = "1"
    CONTEXT.set_forkserver_preload(PRELOADED)
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    print(f"{len(tests)} test files on the unchanged source, then {len(mutants)} planted bugs", flush=True)
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        wrong = [words for words in pool.map(try_unchanged, tests) if words]
        if wrong:
            print(*wrong, sep="\n")
            return 1
        outcomes = []
        for outcome in pool.map(try_mutant, mutants):
            show(outcome)
            outcomes.append(outcome)
    n_caught = sum(outcome.caught for outcome in outcomes)
    print(f"{n_caught} of {len(outcomes)} planted bugs were caught")
    return 0 if n_caught == len(outcomes) else 1


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
    return 1 if unfit else plant_all(mutants)


if __name__ == "__main__":
    sys.exit(main())
