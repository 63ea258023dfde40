"""`heedful look`: what a model does with one sentence, in the terminal or as a page, a picture, a file."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from heedful.cli.look_encoder import is_one_stack, look_at_one_stack
from heedful.cli.output import escape_unwritable, print_json
from heedful.decoding.segmentation import Long
from heedful.errors import UserError
from heedful.models.model_info import builtin_model

if TYPE_CHECKING:
    from heedful.insight.look import Look

BEAM = 5
BRANCHES = 200  # cut branches of the beam that a page can follow without a model
Kind = Literal["cross", "encoder", "decoder"]


def look(
    sentence: str,
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    target: str | None = None,
    output: Path | None = None,
    beam: int = BEAM,
    kind: Kind = "cross",
    layer: int | None = None,
    head: int | None = None,
    without: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    hide: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    piece: int | None = None,
    long: Long = "split",
    json: bool = False,
) -> None:
    """Look inside a model while it reads or translates a sentence, or reads an image.

    Shows the translation, where each token looked, its likeliest rivals, and the beams; --output page.html has all of
    it, to explore, of every family. Of a gpt: what it writes after the sentence, layer by layer. Of a bert or a vit:
    its answer and attention, of an image laid over it. Of several lines one is shown, as heedful translate has it.

    Parameters
    ----------
    sentence
        The text to translate, to read or to go on from; for a vit an image file.
    model
        The folder of a run or of a model; by default the one that comes with heedful, from English to French.
    target
        A translation to look at in place of the model's own: how likely is each of its tokens?
    output
        A file to write: .html a page, .svg .png .pdf a picture, .json .npz everything, for programs.
    beam
        How many hypotheses the search follows; 1 is greedy search.
    kind
        Which attention to show: cross (target to source), or the encoder's or decoder's own.
    layer
        Which layer to show, counted from 1; by default the last.
    head
        Which head to show, counted from 1; by default the mean of all.
    without
        Heads to silence, as kind:layer:head counted from 1: --without cross:2:1 encoder:1:4
    hide
        Words of the sentence that the model must not see, counted from 1: --hide 2 5
    piece
        Which piece of a text of several lines to look at, counted from 1; by default the first.
    long
        Lines that are longer than the model takes, as in heedful translate: split, truncate, extract, error, whole.
    json
        Print what .json has, for programs.
    """
    folder = builtin_model() if model is None else model
    if is_one_stack(folder):
        changed = {"beam": beam != BEAM, "kind": kind != "cross", "long": long != "split"}
        _refuse(folder, target=target, without=without, hide=hide, piece=piece, **changed)
        look_at_one_stack(folder, sentence, output, as_json=json, layer=layer, head=head)
        return
    changes = [_head(words) for words in without or ()], [number - 1 for number in hide or ()]
    seen = _look_inside(folder, sentence, output, target=target, beam=beam, changes=changes, which=(piece, long))
    _show(seen, output, json, kind=kind, layer=layer, head=head)


def _look_inside(
    folder: Path,
    sentence: str,
    output: Path | None,
    *,
    target: str | None,
    beam: int,
    changes: tuple[list[tuple[str, int, int]], list[int]],
    which: tuple[int | None, Long],
) -> "Look":
    from heedful.insight.inputs import open_subject
    from heedful.insight.look import look as look_inside
    from heedful.insight.look_file import check_suffix

    if output is not None:
        check_suffix(output)
    without_heads, masked_words = changes
    piece, long = which
    with _said():
        seen = look_inside(
            open_subject(folder, long=long),
            sentence,
            target=target,
            beam=beam,
            without_heads=without_heads,
            masked_words=masked_words,
            branches=BRANCHES if output is not None and output.suffix.lower() == ".html" else 0,
            piece=None if piece is None else piece - 1,  # counted from 1 as people count
        )
    _say_which(seen)
    return seen


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """Warnings become words on standard error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    for one in said:
        print(f"heedful: {one.message}", file=sys.stderr)


def _say_which(seen: "Look") -> None:
    """A reader of one piece must know that there are others."""
    if seen.pieces is None:
        return
    n, number = len(seen.pieces.sources), seen.pieces.number + 1
    other = number + 1 if number < n else 1
    print(
        f"heedful: the model gets this text in {n} pieces, each by itself, as in heedful translate; "
        f"this is piece {number} of {n}. Another: --piece {other}",
        file=sys.stderr,
    )


def _refuse(folder: Path, **given: object) -> None:
    """Options that only an encoder-decoder has a use for: ignored in silence they would mislead."""
    names = [f"--{name}" for name, value in given.items() if value]
    if names:
        raise UserError(f"{' '.join(names)}: for models that translate, and {folder} is not one; leave it out")


def _show(seen: "Look", output: Path | None, as_json: bool, *, kind: Kind, layer: int | None, head: int | None) -> None:
    from heedful.cli.look_report import print_report
    from heedful.insight.attention_svg import chosen_map

    escape_unwritable()
    chosen_map(seen.attention_map(kind).weights, layer, head)  # complains of a layer that is not there
    if output is not None:
        with _said():
            seen.save(output, layer=layer, head=head, kind=kind)
    if as_json:
        print_json(seen.to_json())
    elif output is not None:
        print(f"{seen.translation.text}\n{output}: {output.stat().st_size:,} bytes")
    else:
        print_report(seen, kind=kind, layer=layer, head=head)


def _head(words: str) -> tuple[str, int, int]:
    """cross:2:1, counted from 1 as people count -> ("cross", 1, 0)."""
    parts = words.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts[1:]):
        raise UserError(f"--without {words}: expected kind:layer:head, counted from 1, as in cross:2:1")
    return parts[0], int(parts[1]) - 1, int(parts[2]) - 1
