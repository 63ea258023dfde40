"""The commands and their options are a contract with other programs, and help appears at once.

The contract is `commands.txt` beside this file. To change it on purpose: python tests/contract/test_cli.py
"""

import resource
import subprocess
import sys
from pathlib import Path

import cyclopts
import pytest

from heedful.cli.main import COMMANDS, make_app
from heedful.cli.reference import GROUPS, CommandRow, command_rows

STORED = Path(__file__).with_name("commands.txt")
LONGEST_HELP = 0.5  # seconds
HELPS = [[], ["--help"], *([name, "--help"] for name in COMMANDS)]


def arguments_of(command: str) -> cyclopts.ArgumentCollection:
    app = make_app()
    return app[command].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)


def contract() -> str:
    """Return one line for each command, then one for each of its arguments and options."""
    return "".join(
        f"{name}\n" + "".join(f"  {' '.join(argument.names)}\n" for argument in arguments_of(name)) for name in COMMANDS
    )


def test_commands_and_options_are_as_stored() -> None:
    assert contract() == STORED.read_text(encoding="utf-8"), (
        "if that is intended, run: python tests/contract/test_cli.py"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(command: str) -> None:
    assert make_app()[command].help
    assert [argument.name for argument in arguments_of(command) if not argument.parameter.help] == []


@pytest.mark.parametrize("row", command_rows(), ids=lambda row: row.name)
def test_every_option_is_in_the_reference(row: CommandRow) -> None:
    assert row.summary.endswith(".") and row.usage.startswith(f"heedful {row.name} ")
    assert [name for option in row.options for name in option.names if name.startswith("-")] == [
        name for argument in by_panel(row.name) for name in argument.names if argument.index is None
    ]
    for option in row.options:
        assert option.group in GROUPS
        assert option.type or option.choices or not option.required
        assert len(option.help) > 10


def by_panel(command: str) -> list[cyclopts.Argument]:
    """Return the arguments of a command in the order of the panels of its help."""
    return sorted(arguments_of(command), key=lambda argument: GROUPS.index(argument.parameter.group[0].name))


@pytest.mark.parametrize("row", command_rows(), ids=lambda row: row.name)
def test_lines_of_help_are_not_broken_again(row: CommandRow) -> None:
    """A description has lines of up to 79 columns; the help text of an option is one line, which is wrapped."""
    assert [line for line in f"{row.summary}\n{row.description}".splitlines() if len(line) > 79] == []
    assert [argument.name for argument in arguments_of(row.name) if "\n" in (argument.parameter.help or "")] == []


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_appears_at_once(arguments: list[str]) -> None:
    # Processor time is independent of other programs on this machine.
    times: list[float] = []
    while not times or (min(times) > LONGEST_HELP and len(times) < 5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.run(
            [sys.executable, "-m", "heedful", *arguments], capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert process.returncode == 0, process.stderr
        assert process.stdout.startswith("Usage: heedful")
    assert 0 < min(times) < LONGEST_HELP


def test_help_imports_neither_torch_nor_numpy() -> None:
    program = f"""
import sys
from heedful.cli.main import run
for arguments in {HELPS}:
    assert run(arguments) == 0, arguments
    assert not {{"torch", "numpy"}} & set(sys.modules), arguments
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


if __name__ == "__main__":
    STORED.write_text(contract(), encoding="utf-8")
