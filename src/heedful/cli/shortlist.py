"""`heedful shortlist MODEL TEXT`: learn which target tokens go with which source tokens, for faster translation."""

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from heedful.cli.options import DATA, MODEL, RUN, Json
from heedful.cli.progress import ProgressReporter


def shortlist(
    model: Annotated[Path, Parameter(group=MODEL)],
    text: Annotated[Path, Parameter(group=DATA)],
    *,
    candidates: Annotated[int, Parameter(group=RUN)] = 100,
    always: Annotated[int, Parameter(group=RUN)] = 200,
    json: Json = False,
) -> None:
    """Learn a lexical shortlist, with which a model translates faster.

    The model translates the text, and for each source token the target tokens
    in its translations are kept. `heedful translate --set shortlist=true` then
    scores only those. A translation may change if the shortlist lacks a token;
    the last lines report how often.

    Parameters
    ----------
    model
        The folder of a run or of a model.
    text
        Text like the one to be translated, in the source language: thousands of lines, one sentence each.
    candidates
        Number of target tokens to keep for each source token.
    always
        Number of frequent target tokens that are allowed everywhere.
    """
    from heedful.data.corpus import read_text
    from heedful.decoding.engines.lexical_shortlist import learn_own_shortlist

    lines = [example.source for example in read_text(text)]
    with ProgressReporter(unit="lines") as progress:
        learned = learn_own_shortlist(model, lines, n_always=always, n_candidates=candidates, progress=progress.update)
    if json:
        print(dumps({**asdict(learned), "path": str(learned.path)}, indent=1))
        return
    size = f"{learned.candidates:.0f} target tokens for each source token, {always} everywhere"
    print(f"learned from {learned.texts:,} lines: {size}")
    if learned.too_long:
        print(f"lines left out, longer than the model's limit: {learned.too_long:,}")
    for each in learned.comparisons:
        search = "greedy search" if each.beam == 1 else f"beam {each.beam}"
        print(
            f"  {search:<14} {each.same:,} of {each.texts:,} other translations unchanged, {each.speed:.2f} x as fast"
        )
    print(f"use it: heedful translate FILE -m {model} --set shortlist=true")
