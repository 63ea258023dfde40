"""Child processes that start at once: forks of a server process that has imported torch and heedful already."""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["heedful.training", "heedful.training.train", "heedful.cli.train"])
TIMEOUT = 300  # seconds


def run_all(function: Callable[..., None], calls: Sequence[tuple[Any, ...]]) -> None:
    """Call a function once for each tuple of arguments, in processes that run at the same time; all must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(number) for number in range(len(calls))]
        processes = [
            CONTEXT.Process(target=_call, args=(dict(os.environ), log, function, args))
            for log, args in zip(logs, calls, strict=True)
        ]
        try:
            for process in processes:
                process.start()
            for process in processes:
                process.join(TIMEOUT)
            for process, log in zip(processes, logs, strict=True):
                assert process.exitcode == 0, log.read_text(encoding="utf-8", errors="replace")[-3000:]
        finally:
            for process in processes:
                process.kill()
                process.join()


def run_file(path: Path, *args: str, folder: Path) -> None:
    """Run a Python file in a folder, as `python path args` does."""
    run_all(_run_file, [(path, args, folder)])


def run_command(*processes: tuple[Sequence[str], Mapping[str, str]]) -> None:
    """Run heedful commands at the same time, each given by its arguments and its environment variables."""
    run_all(_run_command, [(list(args), dict(environment)) for args, environment in processes])


def _call(environment: dict[str, str], log: Path, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.clear()  # the server's environment is that of the moment when it was started
    os.environ.update(environment)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    function(*args)


def _run_file(path: Path, args: tuple[str, ...], folder: Path) -> None:
    os.chdir(folder)
    if "PYTHONSAFEPATH" not in os.environ:
        sys.path.insert(0, str(path.parent))
    sys.argv = [str(path), *args]
    runpy.run_path(str(path), run_name="__main__")


def _run_command(args: list[str], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    from heedful.cli.main import run

    if code := run(args):
        sys.exit(code)
