"""A look at a sentence for the terminal: plain lines, with a little colour where there is a terminal."""

import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from torch import Tensor

from heedful.insight.attention_svg import caption, chosen_map
from heedful.insight.beam_tree import Found
from heedful.insight.look import Look
from heedful.insight.predictions import OutputStep
from heedful.text import SPECIAL_PIECES

MARK = "▁"
TOP = 5
WIDE = 120  # columns, where there is no terminal to ask
LONGEST_TOKEN = 16
VISIBLE = 0.005  # a smaller weight is a dot

Line = tuple[str, str]  # the words, and how they look in a terminal


def print_report(seen: Look, *, kind: str, layer: int | None, head: int | None) -> None:
    lines = report(seen, kind=kind, layer=layer, head=head, width=_width())
    if not sys.stdout.isatty():
        print("\n".join(words for words, _ in lines))
        return
    console = Console(highlight=False, soft_wrap=True)
    for words, style in lines:
        console.print(Text(words, style=style))


def report(seen: Look, *, kind: str, layer: int | None, head: int | None, width: int) -> Iterator[Line]:
    yield seen.source.text, ""
    yield seen.translation.text, "bold"
    yield f"score {seen.translation.score:.3f} (log-probability), ranked by {seen.translation.rank:.4f}", "dim"
    if seen.target.kind == "reference":
        sum_of_logs = sum(step.logit - step.log_sum for step in seen.steps)
        yield f"shown below: {seen.target.text}", "bold"
        yield f"score {sum_of_logs:.3f}, as if the model had written it", "dim"
    if seen.changes is not None:
        yield from _changes(seen)
    yield "", ""
    yield from _steps(seen, width)
    yield "", ""
    yield from _attention(seen, kind, layer, head, width)
    yield "", ""
    yield from _beams(seen)


def _changes(seen: Look) -> Iterator[Line]:
    assert seen.changes is not None
    what = [f"{one.kind} layer {one.layer + 1} head {one.head + 1}" for one in seen.changes.without_heads]
    what += [f"the word {_word(seen, number)!r}" for number in seen.changes.masked_words]
    yield f"changed: without {', '.join(what)}", "yellow"
    yield f"before:  {seen.changes.before.text}", ""
    yield "its tokens, with their probability before and after:", "dim"
    for step in seen.changes.steps:
        yield f"  {_cell(step.token)} {step.before:6.1%} → {step.after:6.1%}", ""


def _word(seen: Look, number: int) -> str:
    first, end = seen.source.words[number]
    return "".join(seen.source.tokens[first:end]).replace(MARK, " ").strip()


def _steps(seen: Look, width: int) -> Iterator[Line]:
    """One line for each token: where it looked, and its rivals."""
    yield "each step: its token, the source token it looked at most, its probability without the word", "dim"
    yield "that it needs most (− word, hidden from the model), the likeliest tokens", "dim"
    looked = {target: source for source, target in seen.alignment}
    for number, step in enumerate(seen.steps):
        source = seen.source.tokens[looked[number]] if number in looked else ""
        line = f"{number + 1:3} {_cell(step.token)} {step.probability:6.1%}  ← {_cell(source)} "
        line += f"{_needed(seen, number)} {_rivals(step)}"
        surprise = "" if step.rank == 0 else "yellow"
        yield _cut(line, width), surprise


def _needed(seen: Look, number: int) -> str:
    """The word without which this token would be least likely, and how likely it would be."""
    if seen.causes is None:
        return _cell("")
    row = seen.causes.hidden.values[number]
    word = int(row.argmax())
    return _cell(f"{100 * seen.steps[number].probability * math.exp(-row[word]):.2g}% − {_word(seen, word)}")


def _rivals(step: OutputStep) -> str:
    return "  ".join(f"{one.token} {100 * one.probability:.2g}%" for one in step.top[:TOP])


def _attention(seen: Look, kind: str, layer: int | None, head: int | None, width: int) -> Iterator[Line]:
    """A table of percent where it fits; otherwise the three heaviest keys of each row."""
    maps = seen.attention_map(kind)
    _, chosen, title = chosen_map(maps.weights, layer, head)
    weights: Tensor = chosen.mean(dim=0) if head is None else chosen[head - 1]  # (T, S)
    names = {"cross": "cross-attention", "encoder": "encoder self-attention", "decoder": "decoder self-attention"}
    cells = [max(4, min(cell_len(token), 9) + 1) for token in maps.source]
    fits = LONGEST_TOKEN + sum(cells) <= width
    yield f"{names[kind]}: {title}, {'in percent' if fits else 'the heaviest keys'}", "dim"
    if fits:
        columns = [_right(token, size) for token, size in zip(maps.source, cells, strict=True)]
        yield " " * LONGEST_TOKEN + "".join(columns), "dim"
    for token, row in zip(maps.target, weights.tolist(), strict=True):
        if fits:
            shown = [_right(_percent(value), size) for value, size in zip(row, cells, strict=True)]
            yield _cell(token) + "".join(shown), ""
        else:
            best = sorted(range(len(row)), key=lambda s, row=row: -row[s])[:3]  # type: ignore[misc]
            yield f"{_cell(token)} " + "  ".join(f"{maps.source[s]} {row[s]:.0%}" for s in best), ""
    yield caption(kind), "dim"


def _percent(weight: float) -> str:
    return f"{100 * weight:.0f}" if weight >= VISIBLE else "·"


@dataclass
class _Branch:
    """Hypotheses with a common beginning: the tokens they share, then where they part."""

    tokens: list[str] = field(default_factory=list)
    branches: "dict[str, _Branch]" = field(default_factory=dict)
    ends: Found | None = None


def _beams(seen: Look) -> Iterator[Line]:
    beam = seen.beam
    pruned = sum(event.fate == "pruned" for event in beam.events)
    yield (
        f"beam of {beam.width}: {len(beam.hypotheses)} finished, {len(beam.events):,} candidates, {pruned:,} cut",
        "dim",
    )
    root = _Branch()
    for one in beam.hypotheses:
        place = root
        for token in (*one.tokens, SPECIAL_PIECES[3]) if one.complete else one.tokens:
            place = place.branches.setdefault(token, _Branch([token]))
        place.ends = one
    yield from _tree(_merged(root), beam.hypotheses[0])


def _merged(branch: _Branch) -> _Branch:
    """Tokens that follow each other without a choice become one line."""
    while len(branch.branches) == 1 and branch.ends is None:
        (only,) = branch.branches.values()
        branch = _Branch(branch.tokens + only.tokens, only.branches, only.ends)
    return _Branch(branch.tokens, {token: _merged(one) for token, one in branch.branches.items()}, branch.ends)


def _tree(branch: _Branch, best: Found) -> Iterator[Line]:
    words = "".join(branch.tokens).replace(MARK, " ").strip()
    if branch.ends is not None:
        score = f"{branch.ends.score:.3f}, ranked by {branch.ends.rank:.4f}"
        yield f"{words}   {score}{'  best' if branch.ends is best else ''}", "bold" if branch.ends is best else ""
    elif words:
        yield words, ""
    children = list(branch.branches.values())
    for number, child in enumerate(children):
        last = number == len(children) - 1
        for place, (line, style) in enumerate(_tree(child, best)):
            joint = ("└─ " if last else "├─ ") if place == 0 else ("   " if last else "│  ")
            yield joint + line, style


def _cell(token: str) -> str:
    """A token in a column of fixed width."""
    return set_cell_size(token if cell_len(token) < LONGEST_TOKEN else token[: LONGEST_TOKEN - 2] + "…", LONGEST_TOKEN)


def _right(text: str, size: int) -> str:
    text = text if cell_len(text) < size else set_cell_size(text, size - 2) + "…"
    return " " * (size - cell_len(text)) + text


def _cut(line: str, width: int) -> str:
    return line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…"


def _width() -> int:
    return shutil.get_terminal_size((WIDE, 40)).columns if sys.stdout.isatty() else WIDE
