"""`heedful look` for encoders: what they answer, and where they look."""

from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.look_text import look_at_language_model
from heedful.cli.output import escape_unwritable, print_json, refuse_overwriting
from heedful.config import read_json
from heedful.models.model_info import CONFIG, find_model_folder

if TYPE_CHECKING:
    from heedful.insight.look_encoder import EncoderLook

ENCODERS = ("bert", "vit")
SHADES = " ·░▒▓█"
TOP = 5


def is_one_stack(model: Path) -> bool:
    """An encoder or a language model, by its settings alone: nothing is loaded."""
    return _family(model) in (*ENCODERS, "gpt")


def look_at_one_stack(
    model: Path, given: str, output: Path | None, *, as_json: bool, layer: int | None, head: int | None
) -> None:
    escape_unwritable()
    look = look_at_language_model if _family(model) == "gpt" else look_at_encoder
    look(model, given, output, as_json=as_json, layer=layer, head=head)


def _family(model: Path) -> object:
    return read_json(find_model_folder(model) / CONFIG).get("family")


def look_at_encoder(
    model: Path, given: str, output: Path | None, *, as_json: bool, layer: int | None, head: int | None
) -> None:
    from heedful.insight.attention_svg import chosen_map
    from heedful.insight.look_encoder import look_encoder
    from heedful.insight.look_file import check_suffix

    if output is not None:
        check_suffix(output)
        refuse_overwriting(output, Path(given))  # a photograph; of a text there is no such file
    seen = look_encoder(model, given)
    chosen_map(seen.weights, layer, head)  # complains of a layer that is not there
    if output is not None:
        seen.save(output, layer=layer, head=head)
    if as_json:
        print_json(seen.to_json())
        return
    print("\n".join(answer_lines(seen)))
    if output is not None:
        print(f"{output}: {output.stat().st_size:,} bytes")
    else:
        print("\n".join(["", *attention_lines(seen, layer, head)]))


def answer_lines(seen: "EncoderLook") -> list[str]:
    """The words for each hidden place, or the labels."""
    from heedful.decoding.classifier import Labelled, LabelledWord

    lines = [seen.given]
    for number, one in enumerate(seen.answer, start=1):
        if isinstance(one, Labelled):
            if number <= TOP:
                lines.append(f"{one.score:8.4f}  {one.label}")
        elif isinstance(one, LabelledWord):
            lines.append(f"{one.score:8.4f}  {one.word}  {one.label}")
        elif isinstance(one, tuple):
            lines += [f"[MASK] {number}", *(f"{word.score:8.4f}  {word.token_text}" for word in one)]
    return lines


def attention_lines(seen: "EncoderLook", layer: int | None, head: int | None) -> list[str]:
    """Of a text where each token looks most; of an image where the class token looks, as shades."""
    from heedful.insight.attention_svg import chosen_map
    from heedful.insight.image_overlay import strengths

    _, chosen, title = chosen_map(seen.weights, layer, head)
    if seen.pixels is not None:
        shares = strengths(seen.over_image(layer, head))
        rows = ["".join(SHADES[round(share * (len(SHADES) - 1))] * 2 for share in row) for row in shares]
        return [f"{title}: where the class token looks", *rows]
    rows_of = chosen.mean(dim=0) if head is None else chosen[head - 1]
    width = max(map(len, seen.tokens))
    lines = [f"{title}: where each token looks most"]
    for token, row in zip(seen.tokens, rows_of, strict=True):
        best = row.topk(min(3, len(row)))
        looks = ", ".join(f"{seen.tokens[int(i)]} {float(w):.2f}" for w, i in zip(*best, strict=True))
        lines.append(f"{token:>{width}} → {looks}")
    return lines
