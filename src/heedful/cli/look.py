"""`heedful look`: show what a model computes for one sentence or image: in the terminal, as a page, as data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from heedful.cli.options import DATA, MODEL, OUTPUT, RUN, Json
from heedful.cli.output import escape_unwritable, print_json, print_message, refuse_overwriting, warnings_as_messages
from heedful.config import read_json
from heedful.decoding.segmentation import Long
from heedful.errors import UserError
from heedful.models.model_info import CONFIG, builtin_model, find_model_folder

if TYPE_CHECKING:
    from heedful.insight.look import Look
    from heedful.insight.look_decoder import DecoderLook
    from heedful.insight.look_encoder import EncoderLook

BEAM = 5
BRANCHES = 200  # pruned branches of the beam that a page can follow without a model
ENCODERS = ("bert", "vit")
Kind = Literal["cross", "encoder", "decoder"]


def look(
    sentence: Annotated[str, Parameter(group=DATA)],
    *,
    target: Annotated[str | None, Parameter(group=DATA)] = None,
    piece: Annotated[int | None, Parameter(group=DATA)] = None,
    long: Annotated[Long, Parameter(group=DATA)] = "split",
    model: Annotated[Path | None, Parameter(name=["--model", "-m"], group=MODEL)] = None,
    beam: Annotated[int, Parameter(group=RUN)] = BEAM,
    without: Annotated[list[str] | None, Parameter(consume_multiple=True, group=RUN)] = None,
    hide: Annotated[list[int] | None, Parameter(consume_multiple=True, group=RUN)] = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], group=OUTPUT)] = None,
    kind: Annotated[Kind, Parameter(group=OUTPUT)] = "cross",
    layer: Annotated[int | None, Parameter(group=OUTPUT)] = None,
    head: Annotated[int | None, Parameter(group=OUTPUT)] = None,
    json: Json = False,
) -> None:
    """Look inside a model while it processes one sentence or image.

    Prints the translation, the source token each step attended to, its most
    probable alternatives, and the beams; --output page.html has all of it, to
    explore. For a gpt it shows the generated text, layer by layer; for a bert
    or a vit the prediction and the attention, which is laid over an image.

    Parameters
    ----------
    sentence
        The text to translate, to read or to continue; for a vit the name of an image file.
    target
        A translation to inspect in place of the model's own: how probable is each of its tokens?
    piece
        Which segment of a text with several lines to show, counted from 1; by default the first.
    long
        Lines beyond the model's limit, as in heedful translate: split, truncate, extract, error, whole.
    model
        The folder of a run or of a model; by default the built-in one from English to French.
    beam
        Hypotheses that the search keeps; 1 is greedy search.
    without
        Attention heads to remove, as kind:layer:head, counted from 1: --without cross:2:1 encoder:1:4
    hide
        Words of the sentence to hide from the model, counted from 1: --hide 2 5
    output
        A file to write: .html is a page, .svg .png .pdf are pictures, .json .npz hold all numbers.
    kind
        Which attention to show: cross (target to source), or the encoder's or the decoder's self-attention.
    layer
        Which layer to show, counted from 1; by default the last.
    head
        Which head to show, counted from 1; by default the mean of all heads.
    """
    folder = builtin_model() if model is None else model
    family = read_json(find_model_folder(folder) / CONFIG).get("family")
    is_encoder_decoder = family not in (*ENCODERS, "gpt")
    if not is_encoder_decoder:
        changed = {"beam": beam != BEAM, "kind": kind != "cross", "long": long != "split"}
        _refuse_options(folder, target=target, without=without, hide=hide, piece=piece, **changed)
    heads, words = [_parse_head(text) for text in without or ()], [number - 1 for number in hide or ()]
    from heedful.cli.look_report import print_report, summary
    from heedful.insight.attention_svg import chosen_map
    from heedful.insight.look_decoder import look_at_decoder
    from heedful.insight.look_encoder import look_at_encoder
    from heedful.insight.look_file import check_suffix

    escape_unwritable()
    if output is not None:
        check_suffix(output)
        if family in ENCODERS:
            refuse_overwriting(output, Path(sentence))  # of a vit, the sentence is an image file
    result: Look | EncoderLook | DecoderLook
    if is_encoder_decoder:
        branches = BRANCHES if output is not None and output.suffix.lower() == ".html" else 0
        result = translation = _look_at_translation(
            folder,
            sentence,
            target=target,
            beam=beam,
            heads=heads,
            words=words,
            piece=piece,
            long=long,
            branches=branches,
        )
        weights, shown = translation.attention_map(kind).weights, {"kind": kind}
    else:
        result = stack = look_at_decoder(folder, sentence) if family == "gpt" else look_at_encoder(folder, sentence)
        weights, shown = stack.weights, {}
    chosen_map(weights, layer, head)  # report a layer or head that does not exist before anything is written
    if output is not None:
        with warnings_as_messages():
            result.save(output, layer=layer, head=head, **shown)
    if json:
        print_json(result.to_json())
    elif output is not None:
        print("\n".join([*summary(result), f"{output}: {output.stat().st_size:,} bytes"]))
    else:
        print_report(result, kind=kind, layer=layer, head=head)


def _look_at_translation(
    folder: Path,
    sentence: str,
    *,
    target: str | None,
    beam: int,
    heads: list[tuple[str, int, int]],
    words: list[int],
    piece: int | None,
    long: Long,
    branches: int,
) -> "Look":
    from heedful.insight.inputs import open_look_model
    from heedful.insight.look import look as look_inside

    with warnings_as_messages():
        result = look_inside(
            open_look_model(folder, long=long),
            sentence,
            target=target,
            beam=beam,
            without_heads=heads,
            masked_words=words,
            branches=branches,
            piece=None if piece is None else piece - 1,
        )
    if result.pieces is not None:
        n, number = len(result.pieces.sources), result.pieces.number + 1
        print_message(
            f"this text has {n} segments, which are translated separately, as in heedful translate; "
            f"shown: segment {number}. For another one: --piece {number + 1 if number < n else 1}"
        )
    return result


def _refuse_options(folder: Path, **used: object) -> None:
    """Raise a UserError for options that only an encoder-decoder can use; to ignore them would mislead."""
    names = [f"--{name}" for name, value in used.items() if value]
    if names:
        raise UserError(f"{' '.join(names)}: for models that translate, and {folder} is not one; leave it out")


def _parse_head(text: str) -> tuple[str, int, int]:
    """Parse kind:layer:head, which people count from 1: "cross:2:1" is ("cross", 1, 0)."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts[1:]):
        raise UserError(f"--without {text}: expected kind:layer:head, counted from 1, as in cross:2:1")
    return parts[0], int(parts[1]) - 1, int(parts[2]) - 1
