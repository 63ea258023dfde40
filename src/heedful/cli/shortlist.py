"""`heedful shortlist MODEL TEXT`: learn once which words a model needs for which, and translate faster from then on."""

from dataclasses import asdict
from json import dumps
from pathlib import Path

from heedful.cli.progress import ProgressReporter


def shortlist(model: Path, text: Path, *, candidates: int = 100, always: int = 200, json: bool = False) -> None:
    """Learn which words a model needs for which, to translate faster.

    The model translates the text, and for each source token the target tokens
    that it wrote are kept. `heedful translate --set shortlist=true` then looks at
    those only. A translation may change where the list lacks a word; the last
    lines say how often that was so.

    Parameters
    ----------
    model
        The folder of a run or of a model.
    text
        Text of the kind that is to be translated, one sentence a line: thousands of lines, in the source language.
    candidates
        How many target tokens to keep for each source token.
    always
        How many of the most frequent target tokens to allow everywhere.
    json
        Print one JSON object, for programs.
    """
    from heedful.data.corpus import read_text
    from heedful.decoding.engines.lexical_shortlist import learn_own_shortlist

    lines = [example.source for example in read_text(text)]
    with ProgressReporter(unit="lines") as passing:
        learned = learn_own_shortlist(model, lines, n_always=always, n_candidates=candidates, progress=passing.update)
    if json:
        print(dumps({**asdict(learned), "path": str(learned.path)}, indent=1))
        return
    kept = f"{learned.candidates:.0f} target tokens for a source token, {always} always"
    print(f"learned from {learned.texts:,} lines: {kept}")
    if learned.too_long:
        print(f"lines left out, longer than the model takes at once: {learned.too_long:,}")
    for one in learned.judged:
        search = "greedy search" if one.beam == 1 else f"beam {one.beam}"
        print(f"  {search:<14} {one.same:,} of {one.texts:,} other translations unchanged, {one.speed:.2f} x as fast")
    print(f"use it: heedful translate FILE -m {model} --set shortlist=true")
