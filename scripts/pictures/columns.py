"""Models as columns of boxes side by side, bottom to top: what differs stands at the same height."""

from dataclasses import dataclass

from svg import INK, SOFT, Picture

ATTENTION, FORWARD, NORM, EMBED, OUT = "#dcebf5", "#fbe3d3", "#eef1f4", "#d9f0e8", "#f3e3ec"
WIDTH = 232  # of a box
COLUMNS = (40, 364, 688)  # left edges of the boxes
BOTTOM, RISE = 580, 66  # of what comes in, and from one box to the next above it

Part = tuple[str, str, str] | None  # what it does, its name in the code, its colour


@dataclass(frozen=True)
class Column:
    name: str
    reads: str
    parts: list[Part]
    says: str
    repeated: tuple[int, int] = (2, 4)  # the first and the last place of the parts that come again
    times: str = "× N"


def draw(picture: Picture, x: float, column: Column, bottom: float = BOTTOM) -> None:
    middle = x + WIDTH / 2
    picture.text(middle, 42, column.name, size=15, anchor="middle", bold=True)
    picture.text(middle, bottom + 34, column.reads, anchor="middle", bold=True)
    first, last = (top(place, bottom) for place in column.repeated)
    picture.box(x - 16, last - 10, WIDTH + 32, first - last + 66, fill="none", stroke="#b8c1ca", round=12)
    picture.text(x + WIDTH + 8, first + 53, column.times, size=11, anchor="end", bold=True)
    below = bottom + 18
    for place, part in enumerate(column.parts):
        if part is None:
            continue
        words, code, fill = part
        y = top(place, bottom)
        picture.arrow((middle, below), (middle, y + 43))
        picture.box(x, y, WIDTH, 42, fill=fill, stroke="#b8c1ca", round=7)
        picture.text(middle, y + 18, words, size=12, anchor="middle", colour=INK)
        picture.text(middle, y + 34, code, size=10.5, anchor="middle", colour=SOFT, mono=True)
        below = y
    picture.arrow((middle, below), (middle, below - 24))
    picture.text(middle, below - 32, column.says, anchor="middle", bold=True)


def top(place: int, bottom: float = BOTTOM) -> float:
    """The upper edge of the box at that place, counted from below."""
    return bottom - 42 - place * RISE
