"""Draw the sinusoidal position code as an image, and the similarity of positions."""

import torch
from torch import Tensor

from heedful.nn.positions import Layout, sinusoidal_code
from svg import BLUE, FAINT, INK, ORANGE, SOFT, Picture, raster

N_POSITIONS, D_MODEL = 20, 512
N_COMPARED = 64  # positions in the picture of similarities


def positions() -> str:
    title = "The sinusoidal code of 20 positions in 512 dimensions, in both layouts, and the similarity of positions"
    picture = Picture(920, 676, title)
    _code(picture, 46, "interleaved", "interleaved: sine and cosine alternate, as in the paper")
    _code(picture, 228, "halves", "halves: all sines, then all cosines; the same values in another order")
    _scale(picture, 748, 32)
    _similarity(picture, 70, 424)
    _by_distance(picture, 400, 424)
    return str(picture)


def _code(picture: Picture, y: float, layout: Layout, caption: str) -> None:
    x, width, height = 70, 820, 112
    code = sinusoidal_code(torch.arange(N_POSITIONS), D_MODEL, layout=layout)
    picture.text(x, y - 10, caption, bold=True)
    picture.image(x, y, width, height, raster(code.tolist()))
    for position in (0, 10, 19):
        picture.text(x - 8, y + (position + 0.5) * height / N_POSITIONS + 4, str(position), anchor="end", colour=SOFT)
    picture.text(28, y + height / 2, "position", anchor="middle", colour=SOFT, upwards=True)
    picture.text(x + width / 2, y + height + 31, "dimension", anchor="middle", colour=SOFT)
    for dimension in (0, 128, 256, 384, 511):
        at = x + (dimension + 0.5) * width / D_MODEL
        picture.text(at, y + height + 15, str(dimension), anchor="middle", colour=SOFT)


def _scale(picture: Picture, x: float, y: float) -> None:
    picture.image(x, y - 8, 120, 10, raster([[i / 60 - 1 for i in range(121)]]))
    picture.text(x - 8, y + 1, "-1", anchor="end", colour=SOFT)
    picture.text(x + 128, y + 1, "1", colour=SOFT)


def _similarities() -> Tensor:
    """Return code(p) . code(q), divided by its value at p = q: (N_COMPARED, N_COMPARED)."""
    code = sinusoidal_code(torch.arange(N_COMPARED), D_MODEL)
    return code @ code.T / (D_MODEL / 2)


def _similarity(picture: Picture, x: float, y: float) -> None:
    side = 190
    picture.text(x, y - 10, "similarity of two positions: code · code", bold=True)
    picture.image(x, y, side, side, raster(_similarities().tolist()))
    for position in (0, 32, 63):
        at = (position + 0.5) * side / N_COMPARED
        picture.text(x - 8, y + at + 4, str(position), anchor="end", colour=SOFT)
        picture.text(x + at, y + side + 15, str(position), anchor="middle", colour=SOFT)
    picture.text(x + side / 2, y + side + 32, "position", anchor="middle", colour=SOFT)
    picture.text(28, y + side / 2, "position", anchor="middle", colour=SOFT, upwards=True)


def _by_distance(picture: Picture, x: float, y: float) -> None:
    width, height = 480, 190
    similarities = _similarities()
    picture.text(x, y - 10, "by distance: nothing else matters", bold=True)
    for value in (0.0, 0.5, 1.0):
        at = y + (1 - value) * height
        picture.path(f"M{x},{at}h{width}", stroke=FAINT)
        picture.text(x - 8, at + 4, f"{value:g}", anchor="end", colour=SOFT)
    for distance in (0, 8, 16, 24, 32):
        picture.text(x + distance / 32 * width, y + height + 15, str(distance), anchor="middle", colour=SOFT)
    picture.text(x + width / 2, y + height + 32, "distance between the positions", anchor="middle", colour=SOFT)
    for start, colour, dash in ((0, BLUE, ""), (31, ORANGE, "5 5")):
        curve = [(x + d / 32 * width, y + (1 - similarities[start, start + d].item()) * height) for d in range(33)]
        picture.path("M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in curve), stroke=colour, width=2.4, dash=dash)
    for i, (label, colour, dash) in enumerate((("from position 0", BLUE, ""), ("from position 31", ORANGE, "5 5"))):
        at = y + 22 + i * 20
        picture.path(f"M{x + width - 150},{at - 4}h28", stroke=colour, width=2.4, dash=dash)
        picture.text(x + width - 114, at, label, colour=INK)
