"""`heedful fill`: predict masked words with a BERT."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heedful.cli.options import DATA, MODEL, OUTPUT, Device, Json, resolve_device
from heedful.cli.output import escape_unwritable, print_json

if TYPE_CHECKING:
    from heedful.decoding.fill_mask import MaskCandidate


def fill(
    text: Annotated[str, Parameter(group=DATA)],
    *,
    model: Annotated[Path, Parameter(name=["--model", "-m"], group=MODEL)],
    target: Annotated[list[str] | None, Parameter(consume_multiple=True, group=DATA)] = None,
    device: Device = "auto",
    top_k: Annotated[int, Parameter(group=OUTPUT)] = 5,
    json: Json = False,
) -> None:
    """Predict the words that a text hides as [MASK].

    Each [MASK] is one token of the model's vocabulary. Several masks are
    predicted independently of each other.

    Parameters
    ----------
    text
        A text with [MASK] in place of each hidden word.
    model
        The folder of a run or of a model of the family bert.
    target
        Score only these words: --target dog cat
    top_k
        Number of words for each mask.
    """
    from heedful.decoding.fill_mask import FillMask

    masks = FillMask.load(model, device=resolve_device(device)).fill(text, top_k=top_k, targets=target)
    if json:
        print_json(_to_json(masks))
        return
    escape_unwritable()
    for number, candidates in enumerate(masks, start=1):
        if len(masks) > 1:
            print(f"[MASK] {number}")
        width = max(len(candidate.token_text) for candidate in candidates)
        for candidate in candidates:
            print(f"{candidate.score:8.4f}  {candidate.token_text:{width}}  {candidate.text}")


def _to_json(masks: "list[list[MaskCandidate]]") -> str:
    """Return a list for each mask, of objects with score, token, token_text and text."""
    names = ("score", "token", "token_text", "text")
    values = [[{name: getattr(each, name) for name in names} for each in candidates] for candidates in masks]
    return json_format.dumps(values, ensure_ascii=False, indent=1)
