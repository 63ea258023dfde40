"""The one door: `heedful COMMAND`. A command's module is imported only when it is called, so help is instant.

A command's function returns None, or its own exit code. What it raises becomes an exit code here and nowhere else:
0 done, 1 the user's mistake, 2 bad usage, 3 our bug, 130 interrupted, 141 the reader of our output went away.
"""

import contextlib
import itertools
import os
import select
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import cyclopts

from heedful import __version__
from heedful.cli.output import REMEDIES, closed_streams_replaced
from heedful.errors import Notice, UserError, did_you_mean

# command -> "module:function", in the order of use. The first line of the function's docstring is its line in the help.
COMMANDS = {
    "demo": "heedful.cli.demo:demo",
    "check": "heedful.cli.check:check",
    "train": "heedful.cli.train:train",
    "translate": "heedful.cli.translate:translate",
    "generate": "heedful.cli.generate:generate",
    "fill": "heedful.cli.fill:fill",
    "classify": "heedful.cli.classify:classify",
    "embed": "heedful.cli.embed:embed",
    "summarize": "heedful.cli.summarize:summarize",
    "shortlist": "heedful.cli.shortlist:shortlist",
    "evaluate": "heedful.cli.evaluate:evaluate",
    "look": "heedful.cli.look:look",
    "serve": "heedful.cli.serve:serve",
    "convert": "heedful.cli.convert:convert",
    "doctor": "heedful.cli.doctor:doctor",
}

DONE, USER_MISTAKE, BAD_USAGE, OUR_BUG, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 130, 141
STDOUT, STDERR = 1, 2


class UnknownCommand(Exception):
    def __str__(self) -> str:
        return f"unknown command '{self.args[0]}'{did_you_mean(self.args[0], COMMANDS)}\nallowed: {', '.join(COMMANDS)}"


class HyphenAsValue(Exception):
    def __str__(self) -> str:
        elsewhere = "; without --output the result goes to standard output" if self.args[0] == "--output" else ""
        return f"{self.args[0]} -: a lone - is standard input, the file to read, and no value of an option{elsewhere}"


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def make_app() -> cyclopts.App:
    app = cyclopts.App(
        name="heedful",
        help="Train, run and look into Transformers.",
        version=f"heedful {__version__}",
        group_commands=cyclopts.Group("Commands", sort_key=0),
        default_parameter=cyclopts.Parameter(
            negative=(),  # --json, without a --no-json beside it
            show_default=lambda value: None if value in (None, (), "") or value is False else str(value),
        ),
        help_format="plaintext",  # Markdown takes as long to import as all the rest
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for place, (name, where) in enumerate(COMMANDS.items()):
        app.command(where, name=name, sort_key=place)
    options = cyclopts.Group("Options", sort_key=1)
    for flag in ("--help", "--version"):
        app[flag].group = options
    return app


def run(arguments: list[str]) -> int:
    """Run one command; whatever happens becomes an exit code and, where it failed, words on standard error."""
    with closed_streams_replaced():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        with _notices():
            code = _call(arguments)
        sys.stdout.flush()  # here, where a reader that went away or a full disk can still be told
        return code
    except (UnknownCommand, HyphenAsValue) as error:
        _say(str(error))
        return BAD_USAGE
    except cyclopts.CycloptsError as error:
        _say(_usage_error(error))
        return BAD_USAGE
    except UserError as error:
        _say(str(error))
        return USER_MISTAKE
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except OSError as error:
        return _failed_output(error)
    except Exception:
        return _our_bug()


def _call(arguments: list[str]) -> int:
    app = make_app()
    if not arguments or arguments[0] in app.help_flags:
        for name in COMMANDS:
            app[name]  # imports it: the help quotes the first line of each docstring
    elif arguments[0] not in app:  # cyclopts would import all commands to say so, and list only some of them
        raise UnknownCommand(arguments[0])
    code = app(_hyphen_as_a_name(app, arguments), exit_on_error=False, print_error=False)
    assert code is None or type(code) is int, f"heedful {arguments[0]} returned {code!r}, not an exit code"
    return DONE if code is None else code


def _hyphen_as_a_name(app: cyclopts.App, arguments: list[str]) -> list[str]:
    """A lone - names standard input. cyclopts takes it for an option, unless it stands behind --.

    Behind an option it must not be moved: `--output - FILE` would become `--output FILE`.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, names = arguments[:end], arguments[end + 1 :]
    if "-" not in options:
        return arguments
    known = app[arguments[0]].assemble_argument_collection(parse_docstring=False) if arguments[0] in app else ()
    takes_a_value = {name for one in known if one.token_count()[0] > 0 for name in one.names}
    for option, value in itertools.pairwise(options):
        if value == "-" and option in takes_a_value:
            raise HyphenAsValue(option)
    return [*(one for one in options if one != "-"), "--", *(one for one in options if one == "-"), *names]


@contextlib.contextmanager
def _notices() -> Iterator[None]:
    """What a user should know is said in the words of a command; other warnings as ever."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, Notice):
                _say(str(message))
            else:
                usual(message, category, *where, **more)

        vars(warnings)["showwarning"] = show
        yield


def _usage_error(error: cyclopts.CycloptsError) -> str:
    words = str(error)
    if isinstance(error, cyclopts.UnusedCliTokensError):  # its own words are a Python list
        words = f"nothing is expected after the other arguments, found: {' '.join(error.unused_tokens or ())}"
    return f"{words}\nSee: {' '.join(['heedful', *(error.command_chain or ()), '--help'])}"


def _failed_output(error: OSError) -> int:
    """The failures of the outside world that no command can foresee; any other OSError is our bug."""
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        _forget_unwritten_output()
        return READER_GONE  # `heedful … | head`: the reader's right, so not a word
    if error.errno in REMEDIES:
        _forget_unwritten_output()
        place = f"{error.filename}: " if error.filename else ""
        _say(f"{place}{error.strerror}: {REMEDIES[error.errno]}")
        return USER_MISTAKE
    return _our_bug()


def _reader_is_gone() -> bool:
    """Whether it is our own output that broke, and not, say, the pipe to a worker that died: that would be a bug."""
    if not hasattr(select, "poll"):  # Windows
        return True
    output = select.poll()
    for stream in (STDOUT, STDERR):
        output.register(stream, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _forget_unwritten_output() -> None:
    """Python flushes standard output once more at exit, and would complain again: let it flush into nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, STDOUT)
    os.close(nothing)


def _our_bug() -> int:
    traceback.print_exc()
    _say(
        "this is a bug of ours, not your mistake. "
        "Please report it with the lines above, the command you typed and the output of `heedful doctor`."
    )
    return OUR_BUG


def _say(words: str) -> None:
    print(f"heedful: {words}", file=sys.stderr)
