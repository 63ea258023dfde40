"""`heedful train RUN`: from files to a model."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, Token

from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.training.events import Listener

INTERRUPTED = 130

# name of an option -> what `train` in Python calls the files after it
KINDS = {"--source": "source", "--text": "text", "--labels": "labels", "--tags": "tags", "--images": "images"}
VALIDS = {"--valid-source": "valid_source", "--valid-target": "valid_target", "--valid": "valid"}


def _with_name(kind: object, tokens: Sequence[Token]) -> list[str]:
    """Each value with the name that its option has in Python: "text=book.txt". Several options share one place."""
    names = KINDS | VALIDS
    return [f"{names[str(token.keyword)]}={token.value}" for token in tokens]


def train(
    run: Path,
    *,
    source: Annotated[list[str] | None, Parameter(name=[*KINDS], consume_multiple=True, converter=_with_name)] = None,
    target: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    valid: Annotated[list[str] | None, Parameter(name=[*VALIDS], converter=_with_name)] = None,
    family: str | None = None,
    recipe: str | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    resume: bool = False,
    init_from: Annotated[Path | None, Parameter(name="--init-from")] = None,
    time_limit: Annotated[str | None, Parameter(name="--for")] = None,
    dry_run: bool = False,
    tensorboard: bool = False,
) -> int:
    """Train a model: translation from two aligned text files, and more.

    Checks the data, learns tokenizers, chooses a recipe, prints a plan and
    trains; RUN then holds model folders (best, last, average), checkpoints,
    settings.toml and log.jsonl. Ctrl-C saves and stops.

    Parameters
    ----------
    run
        The folder of the run, new or, with --resume, old.
    source
        What to learn from. --source: text, one sentence a line, with --target; or files of pairs, alone.
        --text: running text, for gpt, bert, t5 and bart. --labels: text TAB label, for bert.
        --tags: words and tags in columns, for bert. --images: a folder with one for each label, .npz or .csv, for vit.
    target
        The translation of --source, line by line; as many files as it has.
    valid
        What to validate on, of the same kind; without it some of the data is held out.
    family
        seq2seq, gpt, bert, bart, t5, vit or universal; by default seq2seq, or that of --init-from.
    recipe
        tiny, small, base, big, or a TOML file; by default chosen by the family and the size of the data.
    set
        Change any setting of the recipe: --set run.steps=5000 model.dropout=0.2
    resume
        Go on with the run where it was saved, bit for bit.
    init_from
        Begin with the weights and the tokenizers of a run or model folder of the same family.
    time_limit
        Stop after so much training time, for example 30m, 2h or 90s.
    dry_run
        Stop after the plan, and leave nothing behind.
    tensorboard
        Write for TensorBoard too, into RUN/tensorboard.
    """
    from heedful.training.train import train as train_run

    files = {"target": target or (), **files_by_name(source or ()), **one_by_name(valid or ())}
    overrides = [*(set or ()), *([] if time_limit is None else [f"run.minutes={minutes(time_limit)}"])]
    listeners = _listeners(run, resume=resume, tensorboard=tensorboard)
    how = {"family": family, "recipe": recipe, "resume": resume, "init_from": init_from, "dry_run": dry_run}
    result = train_run(folder=run, overrides=overrides, listeners=listeners, **files, **how)  # type: ignore[arg-type]
    if result.interrupted:
        print(f"{result.left_at}; go on with: heedful train {run} --resume", file=sys.stderr)
    return INTERRUPTED if result.interrupted else 0


def files_by_name(given: Sequence[str]) -> dict[str, list[str]]:
    """["text=a", "text=b"] -> {"text": ["a", "b"]}."""
    files: dict[str, list[str]] = {}
    for one in given:
        name, _, path = one.partition("=")
        files.setdefault(name, []).append(path)
    return files


def one_by_name(given: Sequence[str]) -> dict[str, str]:
    files = files_by_name(given)
    for name, paths in files.items():
        if len(paths) > 1:
            raise UserError(f"--{name.replace('_', '-')} was given {len(paths)} times; give one file")
    return {name: paths[0] for name, paths in files.items()}


def _listeners(run: Path, *, resume: bool, tensorboard: bool) -> "list[Listener]":
    from heedful.training.console import make_view
    from heedful.training.events import LOG, read_log
    from heedful.training.tensorboard import TensorBoardLog

    past = read_log(run / LOG) if resume and (run / LOG).exists() else []
    return [make_view(sys.stderr, past=past), *([TensorBoardLog(run / "tensorboard")] if tensorboard else [])]


def minutes(text: str) -> float:
    """ "30m", "2h", "90s" or "1h30m" as minutes."""
    unit_of = {"h": 60.0, "m": 1.0, "s": 1 / 60}
    total, number = 0.0, ""
    for character in text:
        if character in unit_of and number:
            try:
                total += float(number) * unit_of[character]
            except ValueError:
                break
            number = ""
        else:
            number += character
    if number or total <= 0:
        raise UserError(f"--for {text}: expected a length of time such as 30m, 2h, 90s or 1h30m")
    return total
