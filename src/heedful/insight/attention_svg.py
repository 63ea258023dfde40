"""Draw attention as one SVG: a large heat map of one layer, and small maps of every layer and head.

The SVG needs no extra: any browser opens it, and each cell has its exact weight as a tooltip.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from torch import Tensor

from heedful.errors import UserError
from heedful.insight.attention_maps import TokenAttention
from heedful.text import SPECIAL_PIECES

CELL, FONT = 24, 13  # pixels
GAP, MARGIN = 28, 24
LONGEST_LABEL = 22  # characters
VISIBLE = 0.01  # a cell with a smaller weight looks like the white page
MANY_CELLS = 10_000  # a larger map omits cells below VISIBLE, to keep the file small
ROW_OF_PANELS = 760  # width of a row of small maps, in pixels

# One hue from white to dark in even steps of lightness, which colour-blind readers and greyscale prints preserve.
SCALE = ((255, 255, 255), (214, 230, 244), (158, 202, 225), (89, 157, 204), (33, 102, 172), (8, 48, 107))
PAGE, INK, FAINT, FRAME = "#ffffff", "#1a1a1a", "#767676", "#c8ccd0"
FONTS = (
    "system-ui, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Hiragino Sans', 'Microsoft YaHei', "
    "'DejaVu Sans', sans-serif"
)
SPACE = "▁"  # how SentencePiece writes a space; drawn pale
BREAKS = {ord("\n"): "⏎", ord("\t"): "⇥"}  # signs for a piece of white space only
CAPTION = "Row t is the query that produced target token t. Attention is not an explanation."


# kind of attention -> (title, axes)
KINDS = {
    "cross": ("Cross-attention from the target to the source", "source across, target down"),
    "encoder": ("Self-attention of the encoder", "self-attention of the encoder; keys across, queries down"),
    "decoder": (
        "Self-attention of the decoder",
        "self-attention of the decoder; tokens read across, tokens predicted down",
    ),
}


def attention_picture(
    attention: TokenAttention, *, layer: int | None = None, head: int | None = None, kind: str = "cross"
) -> str:
    """Return an SVG document with the attention of one layer, and small maps of its heads and of all layers.

    `layer` and `head` count from 1 and choose the large map; the default is the last layer and the mean of its heads.
    """
    n_layers, n_heads, _, _ = attention.weights.shape
    layer, chosen, title = chosen_map(attention.weights, layer, head)
    main = _Map(attention, chosen.mean(dim=0) if head is None else chosen[head - 1], title, cell=CELL)
    groups = [[(f"head {i + 1}", chosen[i]) for i in range(n_heads)]]
    if n_layers > 1:
        groups.append([(f"layer {i + 1}", attention.weights[i].mean(dim=0)) for i in range(n_layers)])
    headings = [f"Each head of layer {layer}", "Each layer, mean of its heads"]
    return "\n".join(_document(attention, main, list(zip(headings, groups, strict=False)), kind)) + "\n"


def caption(kind: str) -> str:
    """Return the sentence under a picture, which explains its rows."""
    return CAPTION if kind != "encoder" else "Each row is one query. Attention is not an explanation."


def chosen_map(weights: Tensor, layer: int | None, head: int | None) -> tuple[int, Tensor, str]:
    """Return the chosen layer, counted from 1, its weights (H, T, S), and the title of the large map."""
    n_layers, n_heads, _, _ = weights.shape
    layer = n_layers if layer is None else layer
    for what, number, count in (("layer", layer, n_layers), ("head", 1 if head is None else head, n_heads)):
        if not 1 <= number <= count:
            raise UserError(f"{what} {number}: this model has {what}s 1 to {count}")
    which = f"mean of {n_heads} heads" if head is None else f"head {head} of {n_heads}"
    return layer, weights[layer - 1], f"Layer {layer} of {n_layers}, {which}"


Group = tuple[str, list[tuple[str, Tensor]]]


def _document(attention: TokenAttention, main: "_Map", groups: Sequence[Group], kind: str) -> Iterator[str]:
    body: list[str] = []
    n_target, n_source = len(attention.target), len(attention.source)
    left = MARGIN + max(_width(label) for label in main.row_labels) + 10
    top = MARGIN + 64 + max(_width(label) for label in main.column_labels) * 0.72
    body += main.draw(left, top)
    right = left + n_source * CELL + max(60.0, _width(main.column_labels[-1]) * 0.72)
    bottom = top + n_target * CELL
    cell = max(2, min(8, 150 // max(n_source, n_target)))
    for heading, panels in groups:
        body.append(_text(MARGIN, bottom + GAP + 12, heading, size=FONT, weight="600"))
        drawn, width, bottom = _panels(attention, panels, bottom + GAP + 24, cell=cell)
        body += drawn
        right = max(right, width)
    right = max(right, MARGIN + _width(caption(kind), FONT - 1), left + 260)
    body += _legend(MARGIN, bottom + GAP)
    body.append(_text(MARGIN, bottom + GAP + 52, caption(kind), size=FONT - 1, fill=FAINT))
    width, height = round(right + MARGIN), round(bottom + GAP + 52 + MARGIN)
    what, axes = KINDS[kind]
    title = f"{what}. {main.title}."
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{_escaped(title)}" font-family="{_escaped(FONTS)}">'
    )
    yield f'<rect width="{width}" height="{height}" fill="{PAGE}"/>'  # without it, dark text vanishes on a dark page
    yield _text(MARGIN, MARGIN + 14, main.title, size=FONT + 3, weight="600")
    yield _text(MARGIN, MARGIN + 36, axes, size=FONT - 1, fill=FAINT)
    yield from body
    yield "</svg>"


class _Map:
    """One heat map: queries down, keys across."""

    def __init__(self, attention: TokenAttention, weights: Tensor, title: str, *, cell: int) -> None:
        self.attention = attention
        self.weights = weights.tolist()  # (T, S)
        self.title = title
        self.cell = cell
        self.row_labels = [_label(piece) for piece in attention.target]
        self.column_labels = [_label(piece) for piece in attention.source]

    def draw(self, left: float, top: float) -> Iterator[str]:
        yield from self._labels(left, top)
        small = len(self.row_labels) * len(self.column_labels) <= MANY_CELLS
        yield from self.cells(left, top, least=0.0 if small else VISIBLE)

    def cells(self, left: float, top: float, *, least: float = VISIBLE) -> Iterator[str]:
        """Draw each cell whose weight is at least `least`, with its weight as a tooltip."""
        cell, n_rows, n_columns = self.cell, len(self.weights), len(self.weights[0])
        yield f'<g transform="translate({left:g} {top:g})">'
        for t, row in enumerate(self.weights):
            for s, weight in enumerate(row):
                if weight >= least:
                    tooltip = f"{self.attention.target[t]} ← {self.attention.source[s]}: {weight:.4f}"
                    yield (
                        f'<rect x="{s * cell}" y="{t * cell}" width="{cell}" height="{cell}" fill="{colour(weight)}">'
                        f"<title>{_escaped(tooltip)}</title></rect>"
                    )
        yield f'<rect width="{n_columns * cell}" height="{n_rows * cell}" fill="none" stroke="{FRAME}"/></g>'

    def _labels(self, left: float, top: float) -> Iterator[str]:
        for t, label in enumerate(self.row_labels):
            y = top + (t + 0.5) * self.cell + FONT * 0.36
            yield _token(left - 8, y, label, self.attention.target[t], anchor="end")
        for s, label in enumerate(self.column_labels):
            x, y = left + (s + 0.5) * self.cell + FONT * 0.3, top - 8
            turned = f' transform="rotate(-45 {x:g} {y:g})"'
            yield _token(x, y, label, self.attention.source[s], anchor="start", more=turned)


def _panels(
    attention: TokenAttention, panels: Sequence[tuple[str, Tensor]], top: float, *, cell: int
) -> tuple[list[str], float, float]:
    """Draw small maps in rows, without labels; return the SVG lines, and their right and bottom edge in pixels."""
    wide, high = len(attention.source) * cell, len(attention.target) * cell
    step = max(wide, 60) + 16
    n_rows = -(-len(panels) // max(1, (ROW_OF_PANELS + 16) // step))
    per_row = -(-len(panels) // n_rows)  # rows of equal length
    body: list[str] = []
    for i, (name, weights) in enumerate(panels):
        x, y = MARGIN + i % per_row * step, top + i // per_row * (high + 30)
        body.append(_text(x, y + 10, name, size=FONT - 2, fill=FAINT))
        body += _Map(attention, weights, name, cell=cell).cells(x, y + 16)
    return body, MARGIN + min(len(panels), per_row) * step - 16, top + n_rows * (high + 30) - 14


def _legend(left: float, top: float) -> Iterator[str]:
    n_steps, width = 40, 5
    for i in range(n_steps):
        fill = colour((i + 0.5) / n_steps)
        yield f'<rect x="{left + i * width:g}" y="{top:g}" width="{width + 0.5}" height="12" fill="{fill}"/>'
    yield (f'<rect x="{left:g}" y="{top:g}" width="{n_steps * width}" height="12" fill="none" stroke="{FRAME}"/>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + share * n_steps * width
        yield _text(x, top + 26, f"{share:g}", size=FONT - 2, fill=FAINT, anchor="middle")
    yield _text(left + n_steps * width + 14, top + 11, "weight; each row sums to 1", size=FONT - 1, fill=FAINT)


def colour(weight: float) -> str:
    """Return the colour of a weight from 0 to 1."""
    position = min(1.0, max(0.0, weight)) * (len(SCALE) - 1)
    i = min(int(position), len(SCALE) - 2)
    mixed = (round(a + (b - a) * (position - i)) for a, b in zip(SCALE[i], SCALE[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _token(x: float, y: float, label: str, piece: str, *, anchor: str, more: str = "") -> str:
    fill = FAINT if piece in SPECIAL_PIECES else INK
    full = f"<title>{_escaped(piece)}</title>" if label != piece else ""
    words = _escaped(label).replace(SPACE, f'<tspan fill="{FRAME}">{SPACE}</tspan>')
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{FONT}" fill="{fill}" text-anchor="{anchor}"{more}>{full}{words}</text>'
    )


def _text(
    x: float, y: float, words: str, *, size: int, fill: str = INK, weight: str = "400", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}">'
        f"{_escaped(words)}</text>"
    )


def _label(piece: str) -> str:
    if not piece.strip("\n\t"):
        piece = piece.translate(BREAKS)
    return piece if len(piece) <= LONGEST_LABEL else piece[: LONGEST_LABEL - 1] + "…"


def _width(text: str, size: int = FONT) -> float:
    """Estimate the width of a text in pixels, because the font is unknown."""
    return sum(size * (1.0 if unicodedata.east_asian_width(c) in "WF" else 0.62) for c in text)


def _escaped(text: str) -> str:
    """Escape a text for XML; replace control characters and lone surrogates, which XML cannot contain."""
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text), {'"': "&quot;"})
