"""The one door: `heedful COMMAND`. A command's module is imported only when it is called, so help is instant."""

import os
import sys
import traceback

import cyclopts

from heedful.errors import UserError

# command -> "module:function"; cyclopts imports the module when the command, or the help, needs it.
COMMANDS = {
    "check": "heedful.cli.check:check",
    "doctor": "heedful.cli.doctor:doctor",
}

DONE, USER_MISTAKE, BAD_USAGE, OUR_BUG, INTERRUPTED = 0, 1, 2, 3, 130


def make_app() -> cyclopts.App:
    app = cyclopts.App(
        name="heedful",
        help="Train, run and look into Transformers.",
        version=_version,
        result_action="return_value",
    )
    for name, where in COMMANDS.items():
        app.command(where, name=name)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0 done, 1 user's mistake, 2 bad usage, 3 our bug, 130 interrupted."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    try:
        code = make_app()(arguments, exit_on_error=False, print_error=True)
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except cyclopts.CycloptsError:
        return BAD_USAGE  # cyclopts has printed what was wrong
    except UserError as error:
        print(f"heedful: {error}", file=sys.stderr)
        return USER_MISTAKE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`heedful … | head`): that is its right. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USER_MISTAKE
    except Exception:
        traceback.print_exc()
        print(
            f"heedful {_version()}: this is a bug of ours, not your mistake. "
            "Please report it with the lines above and the output of `heedful doctor`.",
            file=sys.stderr,
        )
        return OUR_BUG


def _version() -> str:
    from heedful import __version__

    return __version__
