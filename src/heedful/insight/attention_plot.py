"""Draw the heat maps of attention_svg.py as PNG or PDF with matplotlib (the extra `plot`)."""

import warnings
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
LARGEST_MAP = 14.0  # inches; the cells of a larger map shrink
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
    """Draw a large map of one layer and a small map of each of its heads; `layer` and `head` count from 1."""
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
    colours = LinearSegmentedColormap.from_list("heedful", [tuple(part / 255 for part in rgb) for rgb in SCALE])
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
    metadata = {"CreationDate": None} if format == "pdf" else None  # so that the same input gives the same bytes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(file, format=format, dpi=DOTS_PER_INCH, metadata=metadata)
    if any("missing from" in str(warning.message) for warning in caught):
        warnings.warn(
            "no installed font has all characters of the sentence; characters without a font are drawn as boxes. "
            "An .svg file uses the fonts of the program that opens it",
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
    return [token.replace("$", r"\$") for token in tokens]  # matplotlib reads $…$ as a formula


def _font() -> "FontProperties":
    """Return the installed fonts of FONT_NAMES; matplotlib takes each character from the first font that has it."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    names = [name for name in FONT_NAMES if name in installed]
    return font_manager.FontProperties(family=names or ["sans-serif"])
