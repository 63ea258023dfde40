"""Draw growth charts with logarithmic axes as SVG: a straight line is a power of the length, its slope the exponent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Okabe and Ito's colours, which colour-blind readers can distinguish; the markers differ as well.
COLOURS = ("#222222", "#d55e00", "#7f7f7f", "#cc79a7", "#e69f00", "#009e73", "#56b4e9", "#0072b2")
PAPER, INK, FAINT = "#ffffff", "#222222", "#d9d9d9"
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 300, 300, 64, 64, 48, 92
FONT = "font-family='system-ui, sans-serif'"


@dataclass(frozen=True)
class Line:
    """A line of the chart: the costs of one method, for every panel."""

    name: str
    lengths: Sequence[float]
    costs: dict[str, Sequence[float]]  # panel -> a number for each length


@dataclass(frozen=True)
class Panel:
    """The rectangle of a panel; maps numbers to positions on logarithmic axes."""

    left: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = (math.log(end) for end in self.x_range)
        return self.left + PANEL_WIDTH * (math.log(value) - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = (math.log(end) for end in self.y_range)
        return TOP + PANEL_HEIGHT * (1 - (math.log(value) - low) / (high - low))


def growth_chart(title: str, x_label: str, lines: Sequence[Line]) -> str:
    """Return SVG text with a panel for each kind of cost; costs of zero are left out."""
    panels = list(lines[0].costs)
    width = len(panels) * (LEFT + PANEL_WIDTH + RIGHT)
    height = TOP + PANEL_HEIGHT + BOTTOM
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>",
        f"<title>{escape(title)}</title>",
        f"<rect x='0.5' y='0.5' width='{width - 1}' height='{height - 1}' rx='10' fill='{PAPER}' stroke='{FAINT}'/>",
        _text(LEFT, 26, title, size=15, weight=600),
    ]
    for i, name in enumerate(panels):
        parts += _panel(i, name, x_label, [line for line in lines if any(cost > 0 for cost in line.costs[name])])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(number: int, name: str, x_label: str, lines: Sequence[Line]) -> list[str]:
    lengths = sorted({n for line in lines for n in line.lengths})
    costs = [cost for line in lines for cost in line.costs[name] if cost > 0]
    left = number * (LEFT + PANEL_WIDTH + RIGHT) + LEFT
    panel = Panel(left, (lengths[0], lengths[-1]), _decades(min(costs), max(costs)))
    parts = [_text(left, TOP - 14, name, size=13, weight=600), *_grid(panel, lengths, x_label)]
    ends = []
    for i, line in enumerate(lines):
        points = [(panel.x(n), panel.y(c)) for n, c in zip(line.lengths, line.costs[name], strict=True) if c > 0]
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts += [_marker(i, x, y, colour) for x, y in points]
        ends.append((points[-1][1], points[-1][0], line.name, colour))
    return parts + _labels(ends)


def _grid(panel: Panel, lengths: Sequence[float], x_label: str) -> list[str]:
    bottom, right = TOP + PANEL_HEIGHT, panel.left + PANEL_WIDTH
    parts = []
    low, high = (round(math.log10(end)) for end in panel.y_range)
    for power in range(low, high + 1):
        y = panel.y(10.0**power)
        parts.append(f"<path d='M{panel.left},{y:.1f}H{right}' stroke='{FAINT}'/>")
        parts.append(_text(panel.left - 8, y + 4, f"{10.0**power:,.10g}", anchor="end"))
    for length in lengths:
        x = panel.x(length)
        parts.append(f"<path d='M{x:.1f},{TOP}V{bottom}' stroke='{FAINT}'/>")
        label = f"{length / 1024:g}k" if length >= 1024 else f"{length:g}"
        parts.append(_text(x, bottom + 18, label, anchor="middle"))
    parts.append(_text((panel.left + right) / 2, bottom + 38, x_label, anchor="middle"))
    return parts + _slopes(panel)


def _slopes(panel: Panel) -> list[str]:
    """Draw two dashed guides from the lower left corner: growth with the length, and with its square."""
    first, last = panel.x_range
    start = panel.y_range[0] * 1.5
    parts = []
    for power, label in ((1, "∝ n"), (2, "∝ n²")):
        end = min(last, first * (panel.y_range[1] / start) ** (1 / power))
        x, y = panel.x(end), panel.y(start * (end / first) ** power)
        parts.append(
            f"<path d='M{panel.left},{panel.y(start):.1f}L{x:.1f},{y:.1f}' stroke='#9a9a9a' stroke-dasharray='3 4'/>"
        )
        parts.append(_text(x - 6, y - 5, label, anchor="end", colour="#6a6a6a"))
    return parts


def _labels(ends: list[tuple[float, float, str, str]]) -> list[str]:
    """Label each line at its end: beside the right edge, without overlap; above the line if it ends earlier."""
    parts = []
    edge = max(x for _, x, _, _ in ends)
    lowest = -math.inf
    for y, x, name, colour in sorted(ends):
        if x < edge:
            parts.append(_text(x, y - 9, name, anchor="end", colour=colour, weight=600))
        else:
            lowest = max(y, lowest + 14)
            parts.append(_text(x + 10, lowest + 4, name, colour=colour, weight=600))
    return parts


def _marker(kind: int, x: float, y: float, colour: str) -> str:
    if kind % 4 == 0:
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{colour}'/>"
    if kind % 4 == 1:
        return f"<rect x='{x - 3.2:.1f}' y='{y - 3.2:.1f}' width='6.4' height='6.4' fill='{colour}'/>"
    if kind % 4 == 2:
        return f"<path d='M{x:.1f},{y - 4.5:.1f}l4.5,7.5h-9z' fill='{colour}'/>"
    return f"<path d='M{x:.1f},{y - 4.5:.1f}l4.5,4.5l-4.5,4.5l-4.5,-4.5z' fill='{colour}'/>"


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = INK, weight: int = 400
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' "
        f"fill='{colour}' stroke='{PAPER}' stroke-width='3' paint-order='stroke'>{escape(text)}</text>"
    )


def _decades(low: float, high: float) -> tuple[float, float]:
    """Return the powers of ten around the numbers."""
    bottom, top = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return 10.0**bottom, 10.0 ** max(top, bottom + 1)
