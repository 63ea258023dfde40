"""`heedful train RUN`: train a model from files, or resume a run."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heedful.cli.options import DATA, MODEL, OUTPUT, RUN, Overrides
from heedful.errors import MissingExtra, UserError

if TYPE_CHECKING:
    from heedful.training.events import Listener

INTERRUPTED = 130

Files = Annotated[list[Path] | None, Parameter(consume_multiple=True, group=DATA)]
File = Annotated[Path | None, Parameter(group=DATA)]


def train(
    run: Annotated[Path, Parameter(group=RUN)],
    *,
    source: Files = None,
    target: Files = None,
    text: Files = None,
    labels: Files = None,
    tags: Files = None,
    images: Files = None,
    valid_source: File = None,
    valid_target: File = None,
    valid: File = None,
    family: Annotated[str | None, Parameter(group=MODEL)] = None,
    recipe: Annotated[str | None, Parameter(group=MODEL)] = None,
    init_from: Annotated[Path | None, Parameter(group=MODEL)] = None,
    resume: Annotated[bool, Parameter(group=RUN)] = False,
    steps: Annotated[int | None, Parameter(group=RUN)] = None,
    time_limit: Annotated[str | None, Parameter(name="--for", group=RUN)] = None,
    lr: Annotated[float | None, Parameter(group=RUN)] = None,
    seed: Annotated[int | None, Parameter(group=RUN)] = None,
    device: Annotated[str | None, Parameter(group=RUN)] = None,
    set: Overrides = None,
    dry_run: Annotated[bool, Parameter(group=RUN)] = False,
    tensorboard: Annotated[bool, Parameter(group=OUTPUT)] = False,
) -> int:
    """Train a model to translate, or on text, labels, tags or images.

    Checks the data, learns tokenizers, chooses a recipe, prints a plan and
    trains. RUN then holds model folders (best, last, average), checkpoints,
    settings.toml and log.jsonl. Ctrl-C saves and stops.

    Parameters
    ----------
    run
        The folder of the run: a new one, or with --resume an existing one.
    source
        Text to translate from, one sentence a line, with --target; or files of pairs (.tsv, .tmx, .jsonl, .parquet).
    target
        The translation of --source, line by line; as many files as --source has.
    text
        Running text, for the families gpt, bert, t5 and bart.
    labels
        Lines of text TAB label, for the family bert.
    tags
        Words and their tags in columns, for the family bert.
    images
        A folder with one subfolder for each label, or a .npz or .csv file, for the family vit.
    valid_source
        The text of the validation set; without one, some of the training data is held out.
    valid_target
        The translation of --valid-source, line by line.
    valid
        The validation set of --text, --labels, --tags or --images, or a file of pairs.
    family
        seq2seq, gpt, bert, bart, t5, vit or universal; by default seq2seq, or the family of --init-from.
    recipe
        tiny, small, base, big, or a TOML file; by default chosen by the family and the size of the data.
    init_from
        Start with the weights and the tokenizers of a run or model folder of the same family.
    resume
        Continue the run from its last checkpoint; the result equals an uninterrupted run, bit for bit.
    steps
        Number of optimizer steps (run.steps); by default that of the recipe.
    time_limit
        Stop after this much training time, for example 30m, 2h or 1h30m.
    lr
        Peak learning rate (optimiser.lr); by default that of the recipe.
    seed
        Seed of the random numbers (run.seed); by default that of the recipe.
    device
        Where to compute (run.device): cpu, cuda, cuda:N, mps or auto; by default auto, the best device that there is.
    set
        Any other setting of the recipe: --set model.dropout=0.2 run.validate_every=500
    dry_run
        Stop after the plan and remove everything that was written.
    tensorboard
        Also write the curves for TensorBoard, to RUN/tensorboard.
    """
    resumes = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if (run / "settings.toml").exists() and not resumes:  # reported here before the slow import of torch
        raise UserError(
            f"{run}: there is a run in this folder already; continue it with --resume, or name another folder"
        )
    if tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise MissingExtra("TensorBoard", "track")
    options = {
        "run.steps": steps,
        "run.minutes": None if time_limit is None else minutes(time_limit),
        "optimiser.lr": lr,
        "run.seed": seed,
        "run.device": device,
    }
    overrides = [*(set or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]
    from heedful.training.train import train as train_run

    result = train_run(
        folder=run,
        source=source or (),
        target=target or (),
        text=text or (),
        labels=labels or (),
        tags=tags or (),
        images=images or (),
        valid_source=valid_source,
        valid_target=valid_target,
        valid=valid,
        family=family,
        recipe=recipe,
        init_from=init_from,
        overrides=overrides,
        resume=resume,
        dry_run=dry_run,
        listeners=_listeners(run, resume=resume, tensorboard=tensorboard),
    )
    if result.interrupted:
        print(f"{result.left_at}; continue with: heedful train {run} --resume", file=sys.stderr)
    return INTERRUPTED if result.interrupted else 0


def _listeners(run: Path, *, resume: bool, tensorboard: bool) -> "list[Listener]":
    from heedful.training.console import make_view
    from heedful.training.events import LOG, read_log
    from heedful.training.tensorboard import TensorBoardLog

    past = read_log(run / LOG) if resume and (run / LOG).exists() else []
    return [make_view(sys.stderr, past=past), *([TensorBoardLog(run / "tensorboard")] if tensorboard else [])]


def minutes(text: str) -> float:
    """Return a length of time in minutes.

    >>> [minutes(text) for text in ("30m", "2h", "90s", "1h30m")]
    [30.0, 120.0, 1.5, 90.0]
    """
    minutes_of = {"h": 60.0, "m": 1.0, "s": 1 / 60}
    total, number = 0.0, ""
    for character in text:
        if character in minutes_of and number:
            try:
                total += float(number) * minutes_of[character]
            except ValueError:
                break
            number = ""
        else:
            number += character
    if number or total <= 0:
        raise UserError(f"--for {text}: expected a length of time such as 30m, 2h, 90s or 1h30m")
    return total
