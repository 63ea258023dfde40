"""`heedful train RUN`: from two text files to a model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.training.log import Listener

INTERRUPTED = 130

Many = Annotated[list[Path] | None, Parameter(consume_multiple=True)]


def train(
    run: Path,
    *,
    source: Many = None,
    target: Many = None,
    valid_source: Path | None = None,
    valid_target: Path | None = None,
    recipe: str | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    resume: bool = False,
    start_from: Annotated[Path | None, Parameter(name="--from")] = None,
    time_limit: Annotated[str | None, Parameter(name="--for")] = None,
    dry_run: bool = False,
    tensorboard: bool = False,
) -> int:
    """Train a translation model from two aligned text files.

    Checks the corpus, learns tokenizers, chooses a recipe by the size of the
    data, prints a plan and trains; RUN then holds model folders (best, last,
    average), checkpoints, settings.toml and log.jsonl. Ctrl-C saves and stops.

    Parameters
    ----------
    run
        The folder of the run, new or, with --resume, old.
    source
        Training text, one sentence a line; or files of pairs (.tsv, .jsonl, .tmx, .parquet) without --target.
    target
        Its translation, line by line; as many files as --source has.
    valid_source
        Text to validate on; without it some pairs are held out.
    valid_target
        Its translation.
    recipe
        tiny, small, base, big, or a TOML file; by default chosen by the size of the data.
    set
        Change any setting of the recipe: --set run.steps=5000 model.dropout=0.2
    resume
        Go on with the run where it was saved, bit for bit.
    start_from
        Begin with the weights and the tokenizers of a run or model folder.
    time_limit
        Stop after so much training time, for example 30m, 2h or 90s.
    dry_run
        Stop after the plan, and leave nothing behind.
    tensorboard
        Write for TensorBoard too, into RUN/tensorboard.
    """
    from heedful.training.run import train as train_run

    files = {"source": source or (), "target": target or (), "valid_source": valid_source, "valid_target": valid_target}
    overrides = [*(set or ()), *([] if time_limit is None else [f"run.minutes={minutes(time_limit)}"])]
    listeners = _listeners(run, resume=resume, tensorboard=tensorboard)
    how = {"recipe": recipe, "resume": resume, "start_from": start_from, "dry_run": dry_run}
    result = train_run(folder=run, overrides=overrides, listeners=listeners, **files, **how)  # type: ignore[arg-type]
    if not result.interrupted:
        return 0
    print(f"saved at step {result.step:,}; go on with: heedful train {run} --resume", file=sys.stderr)
    return INTERRUPTED


def _listeners(run: Path, *, resume: bool, tensorboard: bool) -> "list[Listener]":
    from heedful.training.log import LOG, read_log
    from heedful.training.tensorboard import TensorBoardLog
    from heedful.training.view import make_view

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
