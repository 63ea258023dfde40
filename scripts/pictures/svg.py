"""Draw SVG text: a few shapes, one style for all pictures, and small embedded raster images.

Equal input gives equal bytes on every machine, so a test can compare a committed picture with the code that draws it.
"""

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

# A white background, so that pictures are readable on light and dark pages; Okabe and Ito's colour-blind-safe colours.
PAPER, EDGE, INK, SOFT, FAINT = "#ffffff", "#d0d7de", "#1f2328", "#59636e", "#e8ebee"
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#a04c7f", "#56b4e9"
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, monospace"


class Picture:
    """An SVG picture on a white background; screen readers read its `title`."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            "<defs>" + "".join(_head(colour) for colour in (SOFT, BLUE)) + "</defs>",
        ]
        self.box(0.5, 0.5, width - 1, height - 1, fill=PAPER, stroke=EDGE, round=10)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "none", round: float = 0
    ) -> None:
        self.parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(round)}" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        colour: str = INK,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
        upwards: bool = False,
    ) -> None:
        rotation = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if upwards else ""
        style = (' font-weight="600"' if bold else "") + (f' font-family="{MONO}"' if mono else "")
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" fill="{colour}" text-anchor="{anchor}"'
            f"{style}{rotation}>{escape(text)}</text>"
        )

    def path(
        self, d: str, *, stroke: str = "none", fill: str = "none", width: float = 1, dash: str = "", place: str = ""
    ) -> None:
        extra = (f' stroke-dasharray="{dash}"' if dash else "") + (f' transform="{place}"' if place else "")
        self.parts.append(f'<path d="{d}" fill="{fill}" stroke="{stroke}" stroke-width="{_n(width)}"{extra}/>')

    def arrow(self, *points: tuple[float, float], colour: str = SOFT) -> None:
        """Draw a grey or blue line through the points, with an arrowhead at the last one."""
        d = "M" + "L".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self.parts.append(
            f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round" '
            f'marker-end="url(#head-{colour[1:]})"/>'
        )

    def cells(self, x: float, y: float, side: float, rows: Sequence[Sequence[bool]], *, colour: str) -> None:
        """Draw the true cells of a matrix as one path, in which each run of neighbours is one rectangle."""
        runs = []
        for i, row in enumerate(rows):
            j = 0
            while j < len(row):
                end = j
                while end < len(row) and row[end]:
                    end += 1
                if end > j:
                    runs.append(f"M{j} {i}h{end - j}v1h{j - end}z")
                j = end + 1
        self.path("".join(runs), fill=colour, place=f"translate({_n(x)} {_n(y)}) scale({_n(side)})")

    def image(self, x: float, y: float, width: float, height: float, png: bytes) -> None:
        data = base64.b64encode(png).decode()
        self.parts.append(
            f'<image x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" preserveAspectRatio="none" '
            f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
        )

    def __str__(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def _head(colour: str) -> str:
    """Return the definition of an arrowhead."""
    return (
        f'<marker id="head-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0,0.8L7.4,4L0,7.2z" fill="{colour}"/></marker>'
    )


def blend(position: float) -> tuple[int, int, int]:
    """Return the RGB colour of a number: -1 is orange, 0 white, 1 blue."""
    ends = ORANGE if position < 0 else BLUE
    red, green, blue = (int(ends[i : i + 2], 16) for i in (1, 3, 5))
    share = min(1.0, abs(position))
    return tuple(round(255 + (channel - 255) * share) for channel in (red, green, blue))  # type: ignore[return-value]


def raster(rows: Sequence[Sequence[float]]) -> bytes:
    """Return a PNG of numbers from -1 to 1, a pixel for each, in 255 steps of `blend`."""
    palette = bytes(channel for step in range(255) for channel in blend((step - 127) / 127))
    lines = b"".join(b"\0" + bytes(127 + round(127 * max(-1.0, min(1.0, x))) for x in row) for row in rows)
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", _stored(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _stored(data: bytes) -> bytes:
    """Wrap data in zlib's format without compression, because compressed bytes differ between builds of Python."""
    blocks = [data[i : i + 65535] for i in range(0, len(data), 65535)]
    body = b"".join(
        struct.pack("<BHH", i == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for i, block in enumerate(blocks)
    )
    return b"\x78\x01" + body + struct.pack(">I", zlib.adler32(data))


def _n(x: float) -> str:
    return f"{x:.2f}".rstrip("0").rstrip(".")
