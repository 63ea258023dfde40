"""The program `heedful`: exit codes, messages about a wrong command line, and its help."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Annotated, Any

import pytest
from cyclopts import Parameter

import heedful
from heedful.cli import main, reference, usage_errors
from heedful.cli.options import Overrides
from heedful.errors import UserError
from heedful.training import model_setting_rows, setting_rows

FULL_DISK = Path("/dev/full")
ALLOWED = f"allowed: {', '.join(main.COMMANDS)}"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Make a command of each function that is assigned: commands.greet = lambda: print("hello")."""
    module = types.ModuleType("made_up_commands")
    monkeypatch.setitem(sys.modules, "made_up_commands", module)

    class Commands(types.SimpleNamespace):
        def __setattr__(self, name: str, function: object) -> None:
            setattr(module, name, function)
            monkeypatch.setitem(main.COMMANDS, name, f"made_up_commands:{name}")

    return Commands()


def raising(error: BaseException) -> object:
    def command() -> None:
        """Fail."""
        raise error

    return command


def test_exit_code_0(commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    def greet(name: str, *, loud: bool = False) -> None:
        """Greet somebody."""
        print(name.upper() if loud else name)

    commands.greet = greet
    assert main.run(["greet", "you", "--loud"]) == 0
    assert capsys.readouterr() == ("YOU\n", "")


def test_a_command_may_choose_its_exit_code(commands: types.SimpleNamespace) -> None:
    commands.judge = lambda: 1
    assert main.run(["judge"]) == 1


@pytest.mark.parametrize("answer", [True, "text", 1.0])
def test_a_return_value_that_is_no_exit_code_is_a_bug(
    commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], answer: object
) -> None:
    commands.judge = lambda: answer
    assert main.run(["judge"]) == 3
    assert repr(answer) in capsys.readouterr().err


def test_a_user_error(commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    commands.fail = raising(UserError("a.en: no such file"))
    assert main.run(["fail"]) == 1
    assert capsys.readouterr() == ("", "heedful: a.en: no such file\n")


def test_a_bug_in_heedful(commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    commands.fail = raising(ZeroDivisionError("by chance"))
    assert main.run(["fail"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" in err
    assert "ZeroDivisionError: by chance" in err
    assert "report it" in err
    assert "heedful doctor" in err


def test_interrupted(commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    commands.fail = raising(KeyboardInterrupt())
    assert main.run(["fail"]) == 130
    assert capsys.readouterr() == ("", "heedful: interrupted\n")


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), BrokenPipeError(32, "Broken pipe")])
def test_an_unexpected_os_error_is_a_bug(
    commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], error: OSError
) -> None:
    commands.fail = raising(error)  # such as a broken pipe to a worker, while the reader of our output is there
    assert main.run(["fail"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["doctr"], ["unknown command 'doctr'", "did you mean 'doctor'?", ALLOWED]),
        (["doc"], ["unknown command 'doc'", "did you mean 'doctor'?"]),
        (["zzz"], ["unknown command 'zzz'\n", ALLOWED]),
        (["--zzz"], ["unknown command '--zzz'\n", ALLOWED]),
        ([""], ["unknown command ''"]),
        (["doctor", "--jsn"], ["--jsn", "--json", "See: heedful doctor --help"]),
        (["doctor", "--no-json"], ["--no-json"]),
        (["doctor", "--json=perhaps"], ["--json", "perhaps"]),
        (["doctor", "one", "two"], ["found: one two", "See: heedful doctor --help"]),
    ],
)
def test_bad_usage(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("heedful: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_a_lone_hyphen_is_an_argument(commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    """It names standard input, as in `heedful translate -`."""

    def read(file: Path, *, words: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None) -> None:
        """Read a file."""
        print(file, words)

    commands.read = read
    for arguments in (["-"], ["-", "--words", "a", "b"], ["--words", "a", "b", "-"], ["--", "-"]):
        assert main.run(["read", *arguments]) == 0
        assert capsys.readouterr().out == f"- {['a', 'b'] if '--words' in arguments else None}\n"
    assert main.run(["read", "-", "--wrods", "a"]) == 2
    assert "--wrods" in capsys.readouterr().err


def test_a_lone_hyphen_is_no_value_of_an_option(
    commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it were moved behind the other arguments, the input file would become the value of --output."""

    def copy(file: Path, *, output: Annotated[Path | None, Parameter(alias="-o")] = None, json: bool = False) -> None:
        """Copy a file."""
        print(file, output, json)

    commands.copy = copy
    for arguments in (["--output", "-", "x"], ["x", "--output", "-"], ["-o", "-", "x"], ["--output", "-", "-"]):
        assert main.run(["copy", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == "" and "no value of an option" in err
        assert ("goes to standard output" in err) == ("--output" in arguments)
    assert main.run(["copy", "--json", "-", "--output", "y"]) == 0  # --json takes none
    assert capsys.readouterr().out == "- y True\n"


def test_a_missing_argument_is_named(commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    def greet(name: str, n: int) -> None:
        """Greet somebody."""

    commands.greet = greet
    assert main.run(["greet", "you"]) == 2
    assert "--n" in capsys.readouterr().err
    assert main.run(["greet", "you", "often"]) == 2
    assert '"often"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train"], "needs RUN. For example: heedful train runs/mine --source train.en --target train.de"),
        (["generate", "x"], "heedful train runs/book --family gpt --text book.txt"),
        (["fill", "a [MASK]"], 'heedful fill "A [MASK] runs." -m runs/bert'),
        (["classify", "lines.txt"], "needs --model. For example: heedful classify lines.txt -m runs/mood"),
        (["embed", "lines.txt", "--output", "v.npy"], "needs --model"),
        (["embed", "lines.txt", "-m", "runs/bert"], "needs --output"),
        (["summarize", "--format", "jsonl"], "heedful summarize articles.txt -m runs/news"),
        (["convert", "a"], "needs OUTPUT"),
        (["translate", "-m"], "-m: expected a value"),
    ],
)
def test_a_missing_argument_has_an_example(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert f"See: heedful {arguments[0]} --help" in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "runs/x", "--epochs", "3"], "has no --epochs; use --steps"),
        (["train", "runs/x", "--batch-size=3"], "has no --batch-size; use --set data.batch_tokens"),
        (["train", "runs/x", "--from", "y"], "use --init-from"),
        (["generate", "x", "-m", "y", "--max-new-tokens", "3"], "use --max-tokens"),
        (["convert", "x", "y", "--to", "onnx"], "use --format"),
        (["translate", "--src-lang", "en"], "use --from"),
        (["translate", "--bean", "3"], "Did you mean --beam?"),
    ],
)
def test_options_of_other_programs_are_explained(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(usage_errors.INSTEAD))
def test_suggested_options_exist(command: str) -> None:
    """INSTEAD lists no option that the command has, and suggests no option that it lacks."""
    row = next(row for row in reference.command_rows() if row.name == command)
    names = {name for option in row.options for name in option.names}
    assert not names & set(usage_errors.INSTEAD[command])
    for suggestion in usage_errors.INSTEAD[command].values():
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", suggestion)) <= names, suggestion


def test_suggested_settings_exist() -> None:
    names = {row.name for row in (*setting_rows(), *model_setting_rows())}
    for suggestion in usage_errors.INSTEAD["train"].values():
        assert set(re.findall(r"([a-z]+\.[a-z_]+)(?==|\))", suggestion)) <= names, suggestion


def test_settings_end_at_the_first_item_without_an_equals_sign(
    commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(file: Path, *, set: Overrides = None, json: bool = False) -> None:
        """Read a file."""
        print(file, set, json)

    commands.read = read
    for arguments in (
        ["--set", "a=1", "b=2", "x.txt"],
        ["--set", "a=1", "b=2", "--", "x.txt"],
        ["x.txt", "--set", "a=1", "b=2"],
        ["--set", "a=1", "x.txt", "--set", "b=2"],
    ):
        assert main.run(["read", *arguments]) == 0
        assert capsys.readouterr().out == "x.txt ['a=1', 'b=2'] False\n"
    assert main.run(["read", "--set", "a=1", "--json", "x=y.txt"]) == 0
    assert capsys.readouterr().out == "x=y.txt ['a=1'] True\n"
    assert main.run(["read", "--set", "x.txt", "a=1"]) == 1
    assert "A file comes first: heedful read x.txt --set" in capsys.readouterr().err


def test_the_usage_line_names_files_and_required_options(
    commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(file: Path = Path("-"), *others: Path, model: Path, json: bool = False) -> None:
        """Read a file."""

    commands.read = read
    assert main.run(["read", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: heedful read --model MODEL [OPTIONS] [FILE] [OTHERS...]\n")


def test_completion_is_installed_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main.run(["--install-completion", "bash"]) == 0
    path = Path(capsys.readouterr().out.partition(":")[0])
    assert path.is_relative_to(tmp_path)
    assert "--init-from" in path.read_text()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands_in_their_order(
    commands: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    def aaa() -> None:
        """Come last.

        More words.
        """

    commands.aaa = aaa
    assert main.run(arguments) == 0
    text = capsys.readouterr().out
    places = [text.index(f"│ {name} ") for name in main.COMMANDS]
    assert places == sorted(places)
    assert re.search(r"aaa +Come last\.", text)
    assert "More words" not in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"heedful {heedful.__version__}\n"


def test_main_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["heedful", "doctr"])
    with pytest.raises(SystemExit) as exit_info:
        main.main()
    assert exit_info.value.code == 2


@pytest.mark.parametrize("door", [["-m", "heedful"], ["-c", "import sys; from heedful.cli.main import main; main()"]])
def test_both_ways_to_start(door: list[str]) -> None:
    done = subprocess.run([sys.executable, *door, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"heedful {heedful.__version__}\n", "")


def start(command: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start `heedful made-up` in a child process; `command` is the body of its function."""
    body = textwrap.indent(textwrap.dedent(command), "    ")
    program = (
        "import sys, types, os, time, subprocess\nfrom heedful.cli import main\nmodule = types.ModuleType('made_up')\n"
        f"def made_up():\n{body}\n"
        "module.made_up = made_up\nsys.modules['made_up'] = module\nmain.COMMANDS['made-up'] = 'made_up:made_up'\n"
        "main.main(['made-up'])"
    )
    # Users run Python with a buffered standard output, which fails later than an unbuffered one.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen([sys.executable, "-c", program], env=buffered, stderr=subprocess.PIPE, **options)


def test_a_closed_reader_is_no_error() -> None:
    process = start("for i in range(100_000): print(i)", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (141, b"")


def test_a_reader_that_closes_before_the_last_line() -> None:
    process = start("sys.stdin.readline(); print('short')", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(b"go\n", timeout=30)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(not FULL_DISK.exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_and_is_no_bug() -> None:
    with FULL_DISK.open("wb") as full:
        process = start("print('short')", stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.startswith(b"heedful: No space left on device: free some space")
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_interrupted_from_the_keyboard() -> None:
    process = start("print('ready', flush=True); time.sleep(30)", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"heedful: interrupted\n")
