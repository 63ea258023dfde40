"""The heat-maps of `picture.py` for print: PNG and PDF, drawn by matplotlib (the extra `plot`)."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from torch import Tensor

from heedful.errors import MissingExtra
from heedful.insight.attention_maps import TokenAttention
from heedful.insight.attention_svg import FAINT, FRAME, KINDS, SCALE, attention_picture, caption, chosen_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.font_manager import FontProperties

CELL, PANEL, MARGIN, LETTER = 0.26, 1.5, 0.3, 0.085  # inches
LEAST_WIDTH = 7.0
DOTS_PER_INCH = 200
LARGEST_MAP = 14.0  # inches: beyond it cells shrink
FONT_NAMES = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Arial Unicode MS",
)


def draw_attention(
    attention: TokenAttention, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str
) -> None:
    """Write the picture of one layer and head, counted from 1, as "svg", "png" or "pdf"."""
    if format == "svg":
        file.write(attention_picture(attention, layer=layer, head=head, kind=kind).encode("utf-8", "replace"))
    else:
        plot_attention(attention, file, format=format, layer=layer, head=head, kind=kind)


def plot_attention(
    attention: TokenAttention,
    file: BinaryIO,
    *,
    format: str,
    layer: int | None = None,
    head: int | None = None,
    kind: str = "cross",
) -> None:
    """Write the large map of one layer, and a small one for each of its heads; `layer` and `head` count from 1."""
    try:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra(f"drawing .{format} files", "plot") from None
    layer, chosen, title = chosen_map(attention.weights, layer, head)
    main = chosen.mean(dim=0) if head is None else chosen[head - 1]
    n_target, n_source = main.shape
    cell = min(CELL, LARGEST_MAP / max(n_source, n_target))
    width, height = n_source * cell, n_target * cell
    left = MARGIN + 0.1 + max(map(len, attention.target)) * LETTER
    top = 0.8 + max(map(len, attention.source)) * LETTER * 0.75
    wide = max(LEAST_WIDTH, left + width + 1.2)
    columns = max(1, int((wide - MARGIN) // (PANEL + 0.15)))
    rows = -(-len(chosen) // columns)
    high = top + height + 0.5 + rows * (PANEL + 0.35) + 0.5
    colours = LinearSegmentedColormap.from_list("heedful", [tuple(part / 255 for part in one) for one in SCALE])
    font = _font()
    figure = Figure(figsize=(wide, high))

    def place(x: float, y: float, w: float, h: float) -> "Axes":
        return figure.add_axes((x / wide, 1 - (y + h) / high, w / wide, h / high))

    large = place(left, top, width, height)
    image = large.imshow(main.numpy(), cmap=colours, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    _label(large, attention, font, size=min(9.0, cell * 36))
    figure.text(MARGIN / wide, 1 - 0.35 / high, title, fontproperties=font, fontsize=11)
    figure.text(MARGIN / wide, 1 - 0.58 / high, KINDS[kind][0], fontproperties=font, fontsize=8, color=FAINT)
    figure.colorbar(image, cax=place(left + width + 0.15, top, 0.12, min(height, 2.0)))
    for number, weights in enumerate(chosen):
        x, y = MARGIN + number % columns * (PANEL + 0.15), top + height + 0.5 + number // columns * (PANEL + 0.35)
        _panel(place(x, y, PANEL, PANEL), weights, f"head {number + 1}", colours, font)
    figure.text(MARGIN / wide, 0.2 / high, caption(kind), fontproperties=font, fontsize=8, color=FAINT)
    metadata = {"CreationDate": None} if format == "pdf" else None  # the same input gives the same bytes
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure.savefig(file, format=format, dpi=DOTS_PER_INCH, metadata=metadata)
    if any("missing from" in str(one.message) for one in said):
        warnings.warn(
            "no font on this machine has all characters of the sentence: the missing ones are drawn as boxes. "
            "An .svg takes the fonts of whoever opens it",
            stacklevel=3,
        )


def _panel(axes: "Axes", weights: Tensor, name: str, colours: "Colormap", font: "FontProperties") -> None:
    axes.imshow(weights.numpy(), cmap=colours, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    axes.set_title(name, fontproperties=font, fontsize=8, color=FAINT, loc="left", pad=2)
    axes.set_xticks([])
    axes.set_yticks([])
    for edge in axes.spines.values():
        edge.set_color(FRAME)


def _label(axes: "Axes", attention: TokenAttention, font: "FontProperties", *, size: float) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(
        range(len(attention.source)), _plain(attention.source), rotation=45, ha="left", rotation_mode="anchor"
    )
    axes.set_yticks(range(len(attention.target)), _plain(attention.target))
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_fontproperties(font)
        label.set_fontsize(size)
    axes.tick_params(length=0)
    for edge in axes.spines.values():
        edge.set_color(FRAME)


def _plain(tokens: tuple[str, ...]) -> list[str]:
    return [token.replace("$", r"\$") for token in tokens]  # else matplotlib reads mathematics


def _font() -> "FontProperties":
    """Those of the known fonts that are installed; a character is taken from the first that has it."""
    from matplotlib import font_manager

    installed = {Path(one.fname).stem: one.name for one in font_manager.fontManager.ttflist}
    names = [name for name in FONT_NAMES if name in installed.values()]
    return font_manager.FontProperties(family=names or ["sans-serif"])
