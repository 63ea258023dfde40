"""`heedful look` for language models: each token that came, its rivals, where it looked, which layer knew it."""

from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.output import print_json

if TYPE_CHECKING:
    from heedful.insight.look_decoder import TextLook

RIVALS = 3


def look_at_language_model(
    model: Path, prompt: str, output: Path | None, *, as_json: bool, layer: int | None, head: int | None
) -> None:
    from heedful.insight.attention_svg import chosen_map
    from heedful.insight.look_decoder import look_at_text
    from heedful.insight.look_file import check_suffix

    if output is not None:
        check_suffix(output)
    seen = look_at_text(model, prompt)
    chosen_map(seen.weights, layer, head)  # complains of a layer that is not there
    if output is not None:
        seen.save(output, layer=layer, head=head)
    if as_json:
        print_json(seen.to_json())
    elif output is not None:
        print(f"{seen.prompt}{seen.text}\n{output}: {output.stat().st_size:,} bytes")
    else:
        print("\n".join(report(seen, layer, head)))


def report(seen: "TextLook", layer: int | None, head: int | None) -> list[str]:
    """A line for each token that was read: what came next, how likely it was, from which layer on, where it looked."""
    from heedful.insight.attention_svg import chosen_map

    _, chosen, title = chosen_map(seen.weights, layer, head)
    rows = chosen.mean(dim=0) if head is None else chosen[head - 1]
    width = max(len(step.token) for step in seen.steps)
    lines = [f"{seen.prompt}{seen.text}", "", f"next token, its probability, rivals; known from layer; looks ({title})"]
    for place, step in enumerate(seen.steps):
        rivals = [f"{one.token} {one.probability:.2f}" for one in step.top if one.id != step.id]
        best = rows[place, : place + 1].topk(min(RIVALS, place + 1))
        looks = ", ".join(f"{seen.tokens[int(i)]} {float(w):.2f}" for w, i in zip(*best, strict=True))
        mark = ">" if place >= seen.n_prompt - 1 else " "  # what the model wrote itself
        known = known_from(seen, place)
        lines.append(
            f"{mark} {step.token:>{width}} {step.probability:6.3f}  {', '.join(rivals[:RIVALS])}; "
            f"{'never' if known is None else known}; {looks}"
        )
    return lines


def known_from(seen: "TextLook", place: int) -> int | None:
    """The first layer from which on the token that came is the likeliest; 0 is before the first."""
    ranks = [layer.steps[place].rank for layer in seen.lens]
    if ranks[-1] != 0:
        return None
    return max((number + 1 for number, rank in enumerate(ranks) if rank != 0), default=0)
