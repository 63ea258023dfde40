"""Plant one bug after the other in a copy of the source, and check that a test fails each time.

    python tests/mutation/mutants.py [--list] [--only WORDS]      WORDS: a part of the name or file of a mutant

First the tests run on an unchanged copy and must pass. The exit code is 1 if no test fails because of a bug, if the
tests cannot run with it, or if the text that it replaces is no longer in the source.
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
TIMEOUT = 900  # seconds, with room for other work on the machine; a bug that makes the tests hang is not caught

# Each run is a process forked from one that has already imported the slow packages, but not heedful.
CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["torch", "numpy", "pytest", "hypothesis", "safetensors.torch", "sentencepiece"]


@dataclass(eq=False)  # pytest puts its plugins into sets
class TestRun:
    """The result of running tests; also the pytest plugin that collects it."""

    __test__ = False  # for pytest, which would collect a class of this name

    code: int = -1  # pytest's exit code: 0 all passed, 1 some failed, others: the tests could not run
    failed: list[str] = field(default_factory=list)
    words: str = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.removeprefix("tests/"))


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    caught: bool
    words: str  # the test that failed, or the error
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


def run_tests(source: Path, tests: tuple[str, ...]) -> TestRun:
    """Run test files with the package in the folder `source`, until the first failure."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_run_pytest, args=(sender, str(source), tests))
    process.start()
    sender.close()
    try:
        run: TestRun = receiver.recv() if receiver.poll(TIMEOUT) else TestRun(words=f"no end after {TIMEOUT} s")
    except EOFError:
        run = TestRun(words="the process died")
    process.kill()
    process.join()
    return run


def _run_pytest(sender: Connection, source: str, tests: tuple[str, ...]) -> None:
    os.chdir(PROJECT)
    os.environ["PYTHONPATH"] = source  # for child processes of the tests
    sys.path.insert(0, source)
    sys.dont_write_bytecode = True
    import heedful

    run = TestRun()
    if Path(heedful.__file__).is_relative_to(source):
        arguments = ["-x", "--tb=short", "-p", "no:cacheprovider", *(f"tests/{name}" for name in tests)]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            run.code = int(pytest.main(arguments, plugins=[run]))
        run.words = output.getvalue()[-2000:]
    else:  # with the installed package, all tests would pass
        run.words = f"imported {heedful.__file__} instead of the copy"
    sender.send(run)


def try_unchanged(test: str) -> str:
    """Return the errors of a test file on the unchanged source; an empty string if it passes."""
    with copied_source() as source:
        run = run_tests(source, (test,))
    return "" if run.code == 0 else f"tests/{test} fails without any planted bug:\n{run.words}"


def try_mutant(mutant: Mutant) -> Outcome:
    began = time.monotonic()
    with copied_source() as source:
        path = source / "heedful" / mutant.file
        path.write_text(planted(mutant, path.read_text(encoding="utf-8")), encoding="utf-8")
        run = run_tests(source, mutant.tests)
    caught = run.code == 1 and bool(run.failed)
    words = run.failed[0] if caught else "no test failed" if run.code == 0 else run.words
    return Outcome(mutant, caught, words, time.monotonic() - began)


def show(outcome: Outcome) -> None:
    mark, mutant = "caught" if outcome.caught else "MISSED", outcome.mutant
    print(f"{mark}  {mutant.file:20} {mutant.name:68} {outcome.seconds:4.0f} s  {outcome.words}", flush=True)


def plant_all(mutants: list[Mutant]) -> int:
    """Plant the bugs and return the exit code: 0 if every bug was caught."""
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
    parser.add_argument("--list", action="store_true", help="list the bugs and exit")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="plant only bugs whose name or file contains this text"
    )
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in f"{mutant.file} {mutant.name}"]
    if options.list or not mutants:
        print(*(f"{mutant.file:20} {mutant.name}" for mutant in mutants), sep="\n")
        return 0 if mutants else 1
    unfit = [mutant for mutant in mutants if not fits(mutant)]
    for mutant in unfit:
        print(f"{mutant.file}: {mutant.name}: the text to replace does not occur exactly once: {mutant.old!r}")
    return 1 if unfit else plant_all(mutants)


if __name__ == "__main__":
    sys.exit(main())
