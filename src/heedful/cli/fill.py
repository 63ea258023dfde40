"""`heedful fill`: what may stand where a word is hidden."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heedful.cli.output import escape_unwritable, print_json
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.fill_mask import Candidate


def fill(
    text: str,
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    top_k: int = 5,
    target: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    json: bool = False,
    device: str = "cpu",
) -> None:
    """Find the words that may stand where a text says [MASK].

    Each [MASK] is one token of the model's vocabulary. Where there are
    several, each is found by itself: what the others could be is not decided.

    Parameters
    ----------
    text
        A text with [MASK] in place of each hidden word.
    model
        The folder of a run or of a model of the family bert.
    top_k
        How many words for each place.
    target
        Compare these words only: --target dog cat
    json
        Print JSON: for each place a list of score, token, token_text, text.
    device
        Where to compute: cpu, cuda, cuda:N (the GPU of that number, from 0) or mps.
    """
    if model is None:
        raise UserError(
            'which model? Name the folder of a run or a model: heedful fill "A [MASK] runs." -m runs/bert\n'
            "`heedful train runs/bert --family bert --text book.txt` makes one of your own text"
        )
    from heedful.decoding.fill_mask import FillMask

    found = FillMask.load(model, device=device).fill(text, top_k=top_k, targets=target)
    if json:
        print_json(_as_json(found))
        return
    escape_unwritable()
    for number, place in enumerate(found, start=1):
        if len(found) > 1:
            print(f"[MASK] {number}")
        width = max(len(candidate.token_text) for candidate in place)
        for candidate in place:
            print(f"{candidate.score:8.4f}  {candidate.token_text:{width}}  {candidate.text}")


def _as_json(found: "list[list[Candidate]]") -> str:
    names = ("score", "token", "token_text", "text")
    values = [[{name: getattr(one, name) for name in names} for one in place] for place in found]
    return json_format.dumps(values, ensure_ascii=False, indent=1)
