"""What `heedful look` prints in the terminal: one report for each kind of model."""

import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from torch import Tensor

from heedful.decoding.classifier import Labelled, LabelledWord
from heedful.insight.attention_svg import caption, chosen_map
from heedful.insight.beam_tree import Found
from heedful.insight.image_overlay import strengths
from heedful.insight.look import Look
from heedful.insight.look_decoder import DecoderLook
from heedful.insight.look_encoder import EncoderLook
from heedful.insight.predictions import OutputStep
from heedful.text import SPECIAL_PIECES

MARK = "▁"
SHADES = " ·░▒▓█"  # of the attention over an image, from little to much
TOP = 5  # labels, or alternatives to a token
RIVALS = 3  # alternatives to a token, and attended tokens, in the table of a gpt
WIDE = 120  # columns of an output that is not a terminal
LONGEST_TOKEN = 16
VISIBLE = 0.005  # a smaller weight is printed as a dot

Line = tuple[str, str]  # a text and its style in a terminal


def print_report(look: Look | EncoderLook | DecoderLook, *, kind: str, layer: int | None, head: int | None) -> None:
    """Print a look at a sentence or an image; in a terminal with a little color."""
    if isinstance(look, EncoderLook):
        print("\n".join([*prediction_lines(look), "", *encoder_attention_lines(look, layer, head)]))
    elif isinstance(look, DecoderLook):
        print("\n".join(decoder_report(look, layer, head)))
    elif sys.stdout.isatty():
        width = shutil.get_terminal_size((WIDE, 40)).columns
        console = Console(highlight=False, soft_wrap=True)
        for text, style in translation_report(look, kind=kind, layer=layer, head=head, width=width):
            console.print(Text(text, style=style))
    else:
        lines = translation_report(look, kind=kind, layer=layer, head=head, width=WIDE)
        print("\n".join(text for text, _ in lines))


def summary(look: Look | EncoderLook | DecoderLook) -> list[str]:
    """Return the lines that are printed when the look itself goes to a file."""
    if isinstance(look, EncoderLook):
        return prediction_lines(look)
    return [f"{look.prompt}{look.text}" if isinstance(look, DecoderLook) else look.translation.text]


# An encoder-decoder: the translation step by step, its attention and its beams.


def translation_report(look: Look, *, kind: str, layer: int | None, head: int | None, width: int) -> Iterator[Line]:
    """Iterate over the lines of the report on a translation, at most `width` columns wide."""
    yield look.source.text, ""
    yield look.translation.text, "bold"
    yield (
        f"score {look.translation.score:.3f} (log-probability), normalized {look.translation.normalized_score:.4f}",
        "dim",
    )
    if look.target.kind == "reference":
        log_probability = sum(step.logit - step.log_sum for step in look.steps)
        yield f"shown below: {look.target.text}", "bold"
        yield f"score {log_probability:.3f}, if the model had generated it", "dim"
    if look.changes is not None:
        yield from _changes(look)
    yield "", ""
    yield from _steps(look, width)
    yield "", ""
    yield from _attention(look, kind, layer, head, width)
    yield "", ""
    yield from _beams(look)


def _changes(look: Look) -> Iterator[Line]:
    assert look.changes is not None
    removed = [f"{each.kind} layer {each.layer + 1} head {each.head + 1}" for each in look.changes.without_heads]
    removed += [f"the word {_word(look, number)!r}" for number in look.changes.masked_words]
    yield f"changed: without {', '.join(removed)}", "yellow"
    yield f"before:  {look.changes.before.text}", ""
    yield "its tokens, with their probability before and after:", "dim"
    for step in look.changes.steps:
        yield f"  {_cell(step.token)} {step.before:6.1%} → {step.after:6.1%}", ""


def _word(look: Look, number: int) -> str:
    first, end = look.source.words[number]
    return "".join(look.source.tokens[first:end]).replace(MARK, " ").strip()


def _steps(look: Look, width: int) -> Iterator[Line]:
    """Iterate over one line for each target token: the source token it attended to, and its alternatives."""
    yield "each step: its token, the source token it attended to most, its probability if the word after − is", "dim"
    yield "hidden from the model (the word that it needs most), the most probable tokens", "dim"
    attended = {target: source for source, target in look.alignment}
    for number, step in enumerate(look.steps):
        source = look.source.tokens[attended[number]] if number in attended else ""
        line = f"{number + 1:3} {_cell(step.token)} {step.probability:6.1%}  ← {_cell(source)} "
        line += f"{_needed_word(look, number)} {_alternatives(step)}"
        style = "" if step.rank == 0 else "yellow"
        yield _cut(line, width), style


def _needed_word(look: Look, number: int) -> str:
    """Return the word without which a token would be least probable, with that probability."""
    if look.causes is None:
        return _cell("")
    row = look.causes.hidden.values[number]
    word = int(row.argmax())
    return _cell(f"{100 * look.steps[number].probability * math.exp(-row[word]):.2g}% − {_word(look, word)}")


def _alternatives(step: OutputStep) -> str:
    return "  ".join(f"{each.token} {100 * each.probability:.2g}%" for each in step.top[:TOP])


def _attention(look: Look, kind: str, layer: int | None, head: int | None, width: int) -> Iterator[Line]:
    """Iterate over a table of percentages if it fits; otherwise over the three heaviest keys of each row."""
    maps = look.attention_map(kind)
    _, chosen, title = chosen_map(maps.weights, layer, head)
    weights: Tensor = chosen.mean(dim=0) if head is None else chosen[head - 1]  # (T, S)
    names = {"cross": "cross-attention", "encoder": "encoder self-attention", "decoder": "decoder self-attention"}
    widths = [max(4, min(cell_len(token), 9) + 1) for token in maps.source]
    fits = LONGEST_TOKEN + sum(widths) <= width
    yield f"{names[kind]}: {title}, {'in percent' if fits else 'the heaviest keys'}", "dim"
    if fits:
        columns = [_right(token, size) for token, size in zip(maps.source, widths, strict=True)]
        yield " " * LONGEST_TOKEN + "".join(columns), "dim"
    for token, row in zip(maps.target, weights.tolist(), strict=True):
        if fits:
            cells = [_right(_percent(value), size) for value, size in zip(row, widths, strict=True)]
            yield _cell(token) + "".join(cells), ""
        else:
            best = sorted(range(len(row)), key=lambda s, row=row: -row[s])[:3]  # type: ignore[misc]
            yield f"{_cell(token)} " + "  ".join(f"{maps.source[s]} {row[s]:.0%}" for s in best), ""
    yield caption(kind), "dim"


def _percent(weight: float) -> str:
    return f"{100 * weight:.0f}" if weight >= VISIBLE else "·"


@dataclass
class _Branch:
    """Hypotheses with a common prefix: the tokens that they share, then their branches."""

    tokens: list[str] = field(default_factory=list)
    branches: "dict[str, _Branch]" = field(default_factory=dict)
    ends: Found | None = None  # the hypothesis that ends here


def _beams(look: Look) -> Iterator[Line]:
    beam = look.beam
    pruned = sum(event.fate == "pruned" for event in beam.events)
    yield (
        f"beam of {beam.width}: {len(beam.hypotheses)} finished, {len(beam.events):,} candidates, {pruned:,} pruned",
        "dim",
    )
    root = _Branch()
    for hypothesis in beam.hypotheses:
        branch = root
        for token in (*hypothesis.tokens, SPECIAL_PIECES[3]) if hypothesis.complete else hypothesis.tokens:
            branch = branch.branches.setdefault(token, _Branch([token]))
        branch.ends = hypothesis
    yield from _tree(_merged(root), beam.hypotheses[0])


def _merged(branch: _Branch) -> _Branch:
    """Join tokens that follow each other without an alternative, so that they print as one line."""
    while len(branch.branches) == 1 and branch.ends is None:
        (only,) = branch.branches.values()
        branch = _Branch(branch.tokens + only.tokens, only.branches, only.ends)
    return _Branch(branch.tokens, {token: _merged(each) for token, each in branch.branches.items()}, branch.ends)


def _tree(branch: _Branch, best: Found) -> Iterator[Line]:
    text = "".join(branch.tokens).replace(MARK, " ").strip()
    if branch.ends is not None:
        score = f"{branch.ends.score:.3f}, normalized {branch.ends.normalized_score:.4f}"
        yield f"{text}   {score}{'  best' if branch.ends is best else ''}", "bold" if branch.ends is best else ""
    elif text:
        yield text, ""
    children = list(branch.branches.values())
    for number, child in enumerate(children):
        is_last = number == len(children) - 1
        for row, (line, style) in enumerate(_tree(child, best)):
            joint = ("└─ " if is_last else "├─ ") if row == 0 else ("   " if is_last else "│  ")
            yield joint + line, style


def _cell(token: str) -> str:
    """Fit a token into a column of fixed width."""
    return set_cell_size(token if cell_len(token) < LONGEST_TOKEN else token[: LONGEST_TOKEN - 2] + "…", LONGEST_TOKEN)


def _right(text: str, size: int) -> str:
    text = text if cell_len(text) < size else set_cell_size(text, size - 2) + "…"
    return " " * (size - cell_len(text)) + text


def _cut(line: str, width: int) -> str:
    return line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…"


# An encoder: its prediction, then its attention.


def prediction_lines(look: EncoderLook) -> list[str]:
    """Return the candidates for each [MASK], the labels of the text or image, or the label of each word."""
    lines = [look.input_text]
    for number, answer in enumerate(look.answer, start=1):
        if isinstance(answer, Labelled):
            if number <= TOP:
                lines.append(f"{answer.score:8.4f}  {answer.label}")
        elif isinstance(answer, LabelledWord):
            lines.append(f"{answer.score:8.4f}  {answer.word}  {answer.label}")
        elif isinstance(answer, tuple):
            lines += [f"[MASK] {number}", *(f"{word.score:8.4f}  {word.token_text}" for word in answer)]
    return lines


def encoder_attention_lines(look: EncoderLook, layer: int | None, head: int | None) -> list[str]:
    """Return, of a text, what each token attends to most; of an image, the attention of the class token as shades."""
    _, chosen, title = chosen_map(look.weights, layer, head)
    if look.pixels is not None:
        shares = strengths(look.over_image(layer, head))
        rows = ["".join(SHADES[round(share * (len(SHADES) - 1))] * 2 for share in row) for row in shares]
        return [f"{title}: what the class token attends to", *rows]
    weights = chosen.mean(dim=0) if head is None else chosen[head - 1]  # (T, T)
    width = max(map(len, look.tokens))
    lines = [f"{title}: what each token attends to most"]
    for token, row in zip(look.tokens, weights, strict=True):
        lines.append(f"{token:>{width}} → {_heaviest(look.tokens, row)}")
    return lines


def _heaviest(tokens: tuple[str, ...], row: Tensor) -> str:
    best = row.topk(min(RIVALS, len(row)))
    return ", ".join(
        f"{tokens[int(i)]} {float(weight):.2f}" for i, weight in zip(best.indices, best.values, strict=True)
    )


# A decoder: each token, its probability, its alternatives, and the layer from which on it leads.


def decoder_report(look: DecoderLook, layer: int | None, head: int | None) -> list[str]:
    """Return a line for each token that was read: the next token, its probability, its alternatives, its attention."""
    _, chosen, title = chosen_map(look.weights, layer, head)
    weights = chosen.mean(dim=0) if head is None else chosen[head - 1]  # (T, T)
    width = max(len(step.token) for step in look.steps)
    header = f"next token, its probability, alternatives; first layer that predicts it; attention ({title})"
    lines = [f"{look.prompt}{look.text}", "", header]
    for position, step in enumerate(look.steps):
        alternatives = [f"{each.token} {each.probability:.2f}" for each in step.top if each.id != step.id]
        mark = ">" if position >= look.n_prompt - 1 else " "  # generated by the model
        first = known_from(look, position)
        lines.append(
            f"{mark} {step.token:>{width}} {step.probability:6.3f}  {', '.join(alternatives[:RIVALS])}; "
            f"{'never' if first is None else first}; {_heaviest(look.tokens, weights[position, : position + 1])}"
        )
    return lines


def known_from(look: DecoderLook, position: int) -> int | None:
    """Return the first layer from which on the next token is the most probable; 0 is the state before layer 1."""
    ranks = [layer.steps[position].rank for layer in look.lens]
    if ranks[-1] != 0:
        return None
    return max((number + 1 for number, rank in enumerate(ranks) if rank != 0), default=0)
