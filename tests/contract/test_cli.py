"""The commands and their options are a contract with other programs, and help comes at once.

The contract is `commands.txt` beside this file. To change it on purpose: python tests/contract/test_cli.py
"""

import resource
import subprocess
import sys
from pathlib import Path

import cyclopts
import pytest

from heedful.cli.main import COMMANDS, make_app

STORED = Path(__file__).with_name("commands.txt")
LONGEST_HELP = 0.5  # seconds
HELPS = [[], ["--help"], *([name, "--help"] for name in COMMANDS)]


def arguments_of(command: str) -> cyclopts.ArgumentCollection:
    app = make_app()
    return app[command].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)


def contract() -> str:
    """One line for each command, then one for each of its arguments and options."""
    return "".join(
        f"{name}\n" + "".join(f"  {' '.join(argument.names)}\n" for argument in arguments_of(name)) for name in COMMANDS
    )


def test_commands_and_options_are_as_agreed() -> None:
    assert contract() == STORED.read_text(encoding="utf-8"), "meant? Then run: python tests/contract/test_cli.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_something_about_each_option(command: str) -> None:
    assert make_app()[command].help
    assert [argument.name for argument in arguments_of(command) if not argument.parameter.help] == []


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_comes_at_once(arguments: list[str]) -> None:
    # The processor's time, not the clock's: that is what it takes on a machine with nothing else to do.
    times: list[float] = []
    while not times or (min(times) > LONGEST_HELP and len(times) < 5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "heedful", *arguments], capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Usage: heedful")
    assert 0 < min(times) < LONGEST_HELP


def test_help_imports_no_torch() -> None:
    program = f"""
import sys
from heedful.cli.main import run
for arguments in {HELPS}:
    assert run(arguments) == 0, arguments
    assert "torch" not in sys.modules, arguments
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    STORED.write_text(contract(), encoding="utf-8")
