"""Draw the attention of the class token over an image, for every layer and head."""

import base64
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt
from torch import Tensor

from heedful.data.images import Pixels
from heedful.errors import MissingExtra
from heedful.insight.attention_svg import FAINT, FONTS, INK, PAGE, chosen_map

if TYPE_CHECKING:
    from PIL import Image

LARGE, SMALL, GAP, MARGIN = 280, 96, 14, 24  # pixels
PER_ROW = 8
HEAT = (255, 210, 0)  # yellow is visible on dark photographs, also for colour-blind readers
STRONGEST = 0.85  # opacity of the patch with the largest weight
CAPTION = (
    "Bright patches have large attention weights of the class token; each map is scaled to its maximum. "
    "Attention is not an explanation."
)


def overlay_picture(
    pixels: Pixels, weights: Tensor, rollout: Tensor, *, layer: int | None = None, head: int | None = None
) -> str:
    """Return an SVG document: the image, one layer over it, the rollout, and small maps of all heads and layers.

    `weights` are (layers, H, T, T) with the class token first, `rollout` is (rows, columns); `layer` and `head` count
    from 1.
    """
    layer, chosen, title = chosen_map(weights, layer, head)
    side = round((weights.size(-1) - 1) ** 0.5)

    def map_of(rows: Tensor) -> Tensor:  # (T, T) -> (side, side)
        return rows[0, 1:].reshape(side, side)

    main = chosen.mean(dim=0) if head is None else chosen[head - 1]
    heads = [(f"head {i + 1}", map_of(head_weights)) for i, head_weights in enumerate(chosen)]
    layers = [(f"layer {i + 1}", map_of(layer_weights.mean(dim=0))) for i, layer_weights in enumerate(weights)]
    large: list[tuple[str, Tensor | None]] = [
        ("the image", None),
        (title, map_of(main)),
        ("rollout through all layers", rollout),
    ]
    groups = [(f"Each head of layer {layer}", heads), ("Each layer, mean of its heads", layers)]
    return "\n".join(_document(data_url(pixels), large, groups)) + "\n"


def data_url(pixels: Pixels) -> str:
    """Return the image as a data URL with a PNG, so that a page needs no second file."""
    stream = io.BytesIO()
    _image(pixels).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def overlay_png(pixels: Pixels, heat: Tensor, file: BinaryIO) -> None:
    """Write a PNG with the image on the left and the attention over it on the right."""
    from PIL import Image

    image = _image(pixels).convert("RGB").resize((LARGE, LARGE), Image.Resampling.NEAREST)
    opacity = (strengths(heat) * 255 * STRONGEST).round().astype(np.uint8)
    mask = Image.fromarray(opacity).resize((LARGE, LARGE), Image.Resampling.NEAREST)
    page = Image.new("RGB", (2 * LARGE + 3 * GAP, LARGE + 2 * GAP), PAGE)
    page.paste(image, (GAP, GAP))
    dark = Image.eval(image, lambda value: round(value * 0.55))  # so that the bright patches stand out
    page.paste(Image.composite(Image.new("RGB", image.size, HEAT), dark, mask), (LARGE + 2 * GAP, GAP))
    page.save(file, "PNG")


def strengths(heat: Tensor) -> npt.NDArray[np.float64]:
    """Divide the weights (rows, columns) by their maximum."""
    array = heat.numpy().astype(np.float64)
    result: npt.NDArray[np.float64] = array / max(float(array.max()), 1e-12)
    return result


def _image(pixels: Pixels) -> "Image.Image":
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("drawing an image", "images") from None
    array = pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(array))


def _document(
    url: str, large: list[tuple[str, Tensor | None]], groups: list[tuple[str, list[tuple[str, Tensor]]]]
) -> Iterator[str]:
    body: list[str] = []
    for i, (name, heat) in enumerate(large):
        body += _panel(url, name, heat, MARGIN + i * (LARGE + GAP), MARGIN, LARGE)
    top = MARGIN + LARGE + 44
    for heading, panels in groups:
        body.append(_text(MARGIN, top + 14, heading, size=13, weight="600"))
        for i, (name, heat) in enumerate(panels):
            x, y = MARGIN + i % PER_ROW * (SMALL + GAP), top + 26 + i // PER_ROW * (SMALL + 30)
            body += _panel(url, name, heat, x, y, SMALL)
        top += 26 + -(-len(panels) // PER_ROW) * (SMALL + 30) + GAP
    width = max(MARGIN * 2 + len(large) * (LARGE + GAP), MARGIN * 2 + PER_ROW * (SMALL + GAP))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 30}" width="{width}" '
        f'height="{top + 30}" role="img" aria-label="Attention over an image" font-family="{FONTS}">'
    )
    yield f'<rect width="{width}" height="{top + 30}" fill="{PAGE}"/>'
    yield f'<defs><image id="i" width="1" height="1" preserveAspectRatio="none" href="{url}"/></defs>'
    yield from body
    yield _text(MARGIN, top + 14, CAPTION, size=12, fill=FAINT)
    yield "</svg>"


def _panel(url: str, name: str, heat: Tensor | None, x: float, y: float, size: int) -> Iterator[str]:
    yield f'<g transform="translate({x:g} {y:g})"><use href="#i" transform="scale({size})"/>'
    if heat is not None:
        yield f'<rect width="{size}" height="{size}" fill="#000" opacity="0.45"/>'
        shares, colour = strengths(heat), "#{:02x}{:02x}{:02x}".format(*HEAT)
        n_rows, n_columns = shares.shape
        for row in range(n_rows):
            for column in range(n_columns):
                step = size / n_columns
                yield (
                    f'<rect x="{column * step:.2f}" y="{row * step:.2f}" width="{step:.2f}" height="{step:.2f}" '
                    f'fill="{colour}" opacity="{shares[row, column] * STRONGEST:.3f}">'
                    f"<title>row {row + 1}, column {column + 1}: {float(heat[row, column]):.4f}</title></rect>"
                )
    yield _text(0, size + 16, name, size=12 if size > SMALL else 11, fill=INK if size > SMALL else FAINT) + "</g>"


def _text(x: float, y: float, words: str, *, size: int, fill: str = INK, weight: str = "400") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{fill}">{words}</text>'
