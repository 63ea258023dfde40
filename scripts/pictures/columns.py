"""Draw models as columns of boxes from bottom to top; parts that correspond stand at the same height."""

from dataclasses import dataclass

from svg import INK, SOFT, Picture

ATTENTION, FORWARD, NORM, EMBED, OUT = "#dcebf5", "#fbe3d3", "#eef1f4", "#d9f0e8", "#f3e3ec"
WIDTH = 232  # of a box
COLUMNS = (40, 364, 688)  # left edges of the boxes
BOTTOM, RISE = 580, 66  # height of the input's label, and distance from one box to the next

Part = tuple[str, str, str] | None  # label, name in the code, colour; None leaves the place empty


@dataclass(frozen=True)
class Column:
    """One model: its parts from the input to the output."""

    name: str
    inputs: str
    parts: list[Part]
    outputs: str
    repeated: tuple[int, int] = (2, 4)  # first and last index of the repeated parts
    times: str = "× N"


def draw(picture: Picture, x: float, column: Column, bottom: float = BOTTOM) -> None:
    middle = x + WIDTH / 2
    picture.text(middle, 42, column.name, size=15, anchor="middle", bold=True)
    picture.text(middle, bottom + 34, column.inputs, anchor="middle", bold=True)
    first, last = (top(index, bottom) for index in column.repeated)
    picture.box(x - 16, last - 10, WIDTH + 32, first - last + 66, fill="none", stroke="#b8c1ca", round=12)
    picture.text(x + WIDTH + 8, first + 53, column.times, size=11, anchor="end", bold=True)
    below = bottom + 18
    for index, part in enumerate(column.parts):
        if part is None:
            continue
        label, code, fill = part
        y = top(index, bottom)
        picture.arrow((middle, below), (middle, y + 43))
        picture.box(x, y, WIDTH, 42, fill=fill, stroke="#b8c1ca", round=7)
        picture.text(middle, y + 18, label, size=12, anchor="middle", colour=INK)
        picture.text(middle, y + 34, code, size=10.5, anchor="middle", colour=SOFT, mono=True)
        below = y
    picture.arrow((middle, below), (middle, below - 24))
    picture.text(middle, below - 32, column.outputs, anchor="middle", bold=True)


def top(index: int, bottom: float = BOTTOM) -> float:
    """Return the upper edge of a box, counted from the bottom."""
    return bottom - 42 - index * RISE
