"""The program `heedful`: the table of commands, the call of one of them, and the exit code.

The module of a command is imported only when the command is called, so that help appears at once. A command's function
returns None or an exit code; an exception becomes an exit code here and nowhere else: 0 done, 1 the user's mistake,
2 wrong command line, 3 bug in heedful, 130 interrupted, 141 standard output closed by its reader.
"""

import contextlib
import itertools
import os
import select
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import cyclopts

from heedful import __version__
from heedful.cli.output import REMEDIES, print_message, replace_closed_streams
from heedful.cli.usage_errors import describe, repeat_set
from heedful.errors import Notice, UserError, did_you_mean

# command -> "module:function", in the order of the help, which shows the first line of the function's docstring.
COMMANDS = {
    "demo": "heedful.cli.demo:demo",
    "doctor": "heedful.cli.doctor:doctor",
    "check": "heedful.cli.check:check",
    "train": "heedful.cli.train:train",
    "translate": "heedful.cli.translate:translate",
    "summarize": "heedful.cli.summarize:summarize",
    "generate": "heedful.cli.generate:generate",
    "fill": "heedful.cli.fill:fill",
    "classify": "heedful.cli.classify:classify",
    "embed": "heedful.cli.embed:embed",
    "serve": "heedful.cli.serve:serve",
    "evaluate": "heedful.cli.evaluate:evaluate",
    "look": "heedful.cli.look:look",
    "convert": "heedful.cli.convert:convert",
    "shortlist": "heedful.cli.shortlist:shortlist",
}

# The panels of `heedful --help`, in this order; a command without a panel is shown under Tools.
PANELS = {
    "Start": ("demo", "doctor"),
    "Train": ("check", "train"),
    "Use": ("translate", "summarize", "generate", "fill", "classify", "embed", "serve"),
    "Inspect": ("evaluate", "look"),
    "Tools": ("convert", "shortlist"),
}
OPTIONS = cyclopts.Group("Options", sort_key=len(PANELS))

DONE, USER_MISTAKE, BAD_USAGE, OUR_BUG, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 130, 141
STDOUT, STDERR = 1, 2


class UnknownCommand(Exception):
    def __str__(self) -> str:
        return f"unknown command '{self.args[0]}'{did_you_mean(self.args[0], COMMANDS)}\nallowed: {', '.join(COMMANDS)}"


class HyphenAsValue(Exception):
    def __str__(self) -> str:
        remedy = "; without --output the result goes to standard output" if self.args[0] == "--output" else ""
        return f"{self.args[0]} -: a lone - means standard input and is no value of an option{remedy}"


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def make_app() -> cyclopts.App:
    """Build the parser of the command line; a command's module is imported when its name is looked up."""
    app = cyclopts.App(
        name="heedful",
        help="Train, run and look into Transformers.",
        version=f"heedful {__version__}",
        default_parameter=cyclopts.Parameter(
            negative=(),  # --json without a --no-json beside it
            show_default=lambda value: None if value in (None, (), "") or value is False else str(value),
        ),
        help_format="plaintext",  # the import of a Markdown reader takes as long as all other imports together
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    panels = {name: cyclopts.Group(name, sort_key=number) for number, name in enumerate(PANELS)}
    panel_of = {command: panels[panel] for panel, commands in PANELS.items() for command in commands}
    for number, (name, function) in enumerate(COMMANDS.items()):
        app.command(function, name=name, sort_key=number, group=panel_of.get(name, panels["Tools"]))
    app.command(
        "heedful.cli.main:install_completion",
        name="--install-completion",
        help="Let the shell complete commands and options: bash, zsh or fish.",
        group=OPTIONS,
    )
    for flag in ("--help", "--version"):
        app[flag].group = OPTIONS
    return app


def install_completion(shell: Literal["bash", "zsh", "fish"] | None = None) -> None:
    """Let the shell complete commands and options.

    Parameters
    ----------
    shell
        The shell; by default the shell of this terminal.
    """
    from cyclopts.completion.detect import ShellDetectionError

    try:
        path = make_app().install_completion(shell=shell)
    except ShellDetectionError:
        raise UserError("this shell is not known; name it: heedful --install-completion bash") from None
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be written: {error.strerror}") from None
    print(f"{path}: start a new shell to use it")


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; a failure is explained on standard error."""
    with replace_closed_streams():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        with _notices_as_messages():
            code = _call(arguments)
        sys.stdout.flush()  # now, while a closed reader or a full disk can still be reported
        return code
    except (UnknownCommand, HyphenAsValue) as error:
        print_message(str(error))
        return BAD_USAGE
    except cyclopts.CycloptsError as error:
        print_message(describe(error))
        return BAD_USAGE
    except UserError as error:
        print_message(str(error))
        return USER_MISTAKE
    except KeyboardInterrupt:
        print_message("interrupted")
        return INTERRUPTED
    except OSError as error:
        return _report_output_error(error)
    except Exception:
        return _report_bug()


def _call(arguments: list[str]) -> int:
    app = make_app()
    if not arguments or arguments[0] in app.help_flags:
        for name in COMMANDS:
            app[name]  # imports its module: the help quotes the first line of each docstring
    elif arguments[0] not in app:  # to report this, cyclopts would import all commands, and list only some of them
        raise UnknownCommand(arguments[0])
    elif arguments[0] in COMMANDS:
        if any(flag in arguments for flag in app.help_flags):
            from heedful.cli.reference import usage

            app[arguments[0]].usage = usage(app, arguments[0])
        arguments = [arguments[0], *repeat_set(arguments[0], arguments[1:])]
    code = app(_move_hyphens(app, arguments), exit_on_error=False, print_error=False)
    assert code is None or type(code) is int, f"heedful {arguments[0]} returned {code!r}, not an exit code"
    return DONE if code is None else code


def _move_hyphens(app: cyclopts.App, arguments: list[str]) -> list[str]:
    """Move each lone "-", the name of standard input, behind "--", where cyclopts does not take it for an option.

    A "-" after an option that takes a value is an error: if it moved, `--output - FILE` would become `--output FILE`.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, names = arguments[:end], arguments[end + 1 :]
    if "-" not in options:
        return arguments
    known = app[arguments[0]].assemble_argument_collection(parse_docstring=False) if arguments[0] in app else ()
    takes_value = {name for argument in known if argument.token_count()[0] > 0 for name in argument.names}
    for option, value in itertools.pairwise(options):
        if value == "-" and option in takes_value:
            raise HyphenAsValue(option)
    hyphens = [argument for argument in options if argument == "-"]
    return [*(argument for argument in options if argument != "-"), "--", *hyphens, *names]


@contextlib.contextmanager
def _notices_as_messages() -> Iterator[None]:
    """Print each `Notice` as a message of the command; show other warnings as Python does."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if issubclass(category, Notice):
                print_message(str(message))
            else:
                usual(message, category, *where, **options)

        vars(warnings)["showwarning"] = show
        yield


def _report_output_error(error: OSError) -> int:
    """Report a failing output (closed reader, full disk); any other OSError is a bug in heedful."""
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        _discard_buffered_output()
        return READER_GONE  # `heedful … | head` is normal use: no message
    if error.errno in REMEDIES:
        _discard_buffered_output()
        file = f"{error.filename}: " if error.filename else ""
        print_message(f"{file}{error.strerror}: {REMEDIES[error.errno]}")
        return USER_MISTAKE
    return _report_bug()


def _reader_is_gone() -> bool:
    """Return whether the reader of our own output is gone; a broken pipe to a worker process would be a bug."""
    if not hasattr(select, "poll"):  # Windows
        return True
    output = select.poll()
    for stream in (STDOUT, STDERR):
        output.register(stream, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _discard_buffered_output() -> None:
    """Redirect standard output to /dev/null: Python flushes it once more at exit and would report the error again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)


def _report_bug() -> int:
    traceback.print_exc()
    print_message(
        "this is a bug in heedful, not your mistake. "
        "Please report it with the lines above, the command you typed and the output of `heedful doctor`."
    )
    return OUR_BUG
