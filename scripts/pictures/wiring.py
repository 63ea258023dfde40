"""Draw the whole Transformer, and the ways in which decoder layers read encoder layers."""

from svg import BLUE, INK, PURPLE, SOFT, Picture

ATTENTION, FORWARD, NORM, EMBED, OUT = "#dcebf5", "#fbe3d3", "#eef1f4", "#d9f0e8", "#f3e3ec"
WIDTH = 236  # of a box
LEFT, RIGHT = 96, 560  # left edges of the encoder's and the decoder's boxes
SUB_LAYER = 116  # distance from one sub-layer to the next
FIRST = 490  # top of the box of the lowest sub-layer


def transformer() -> str:
    title = "The Transformer: encoder left, decoder right, and the shapes between the parts"
    picture = Picture(920, 790, title)
    for x, ids, length in ((LEFT, "source ids", "S"), (RIGHT, "target ids so far", "T")):
        _embed(picture, x, ids, length)
    _layer_of(picture, LEFT, "EncoderLayer", ["self-attention", "feed-forward"], branch=-22)
    _layer_of(picture, RIGHT, "DecoderLayer", ["causal self-attention", "cross-attention", "feed-forward"], branch=22)
    _head(picture, RIGHT, bottom=FIRST - 2 * SUB_LAYER - 36)
    _memory(picture, top=FIRST - SUB_LAYER - 36)
    _tie(picture)
    legend = ("B batch", "S source length", "T target length", "D d_model", "V vocabulary")
    for i, letter in enumerate(legend):
        picture.text(52 + i * 130, 766, letter, colour=SOFT)
    return str(picture)


def _embed(picture: Picture, x: float, ids: str, length: str) -> None:
    middle = x + WIDTH / 2
    picture.text(middle, 734, ids, anchor="middle", bold=True)
    picture.arrow((middle, 716), (middle, 680))
    _shape(picture, middle, 704, f"B, {length}")
    _box(picture, x, 630, "embedding × √D", "TokenEmbedding", EMBED)
    picture.arrow((middle, 630), (middle, 615))
    picture.path(f"M{middle - 9},605a9,9 0 1,0 18,0a9,9 0 1,0 -18,0z", stroke=SOFT, fill="#ffffff", width=1.4)
    picture.path(f"M{middle - 5},605h10M{middle},600v10", stroke=INK, width=1.4)
    picture.arrow((middle + 52, 605), (middle + 11, 605))
    picture.text(middle + 58, 603, "position code", size=11.5)
    picture.text(middle + 58, 617, "Sinusoidal", size=10.5, colour=SOFT, mono=True)
    _shape(picture, middle - 66, 592, f"B, {length}, D")


def _layer_of(picture: Picture, x: float, name: str, parts: list[str], *, branch: float) -> None:
    """Draw a frame with the sub-layers in it, the first at the bottom."""
    left, right = x - 26 + min(0, 1.2 * branch), x + WIDTH + 26 + max(0, 1.2 * branch)
    top = FIRST - (len(parts) - 1) * SUB_LAYER - 74
    picture.box(left, top, right - left, 576 - top, fill="none", stroke="#b8c1ca", round=12)
    picture.text(left + 12, top + 20, name, size=11.5, colour=SOFT, mono=True)
    picture.text(right - 12, top + 20, "× N", anchor="end", bold=True)
    for i, label in enumerate(parts):
        start = 596 if i == 0 else FIRST - i * SUB_LAYER + SUB_LAYER - 36
        _residual(picture, x, FIRST - i * SUB_LAYER, label, start=start, branch=branch)


def _residual(picture: Picture, x: float, y: float, label: str, *, start: float, branch: float) -> None:
    """Draw a part with its residual connection: input and output are added, then normalized."""
    middle = x + WIDTH / 2
    part, fill = ("FeedForward", FORWARD) if label == "feed-forward" else ("MultiHeadAttention", ATTENTION)
    _box(picture, x, y, label, part, fill)
    picture.box(x, y - 36, WIDTH, 22, fill=NORM, stroke="#b8c1ca", round=5)
    picture.text(middle, y - 21, "add, then norm", size=11, anchor="middle")
    picture.arrow((middle, start), (middle, y + 51))
    picture.arrow((middle, y), (middle, y - 13))
    edge = x if branch < 0 else x + WIDTH
    around = edge + branch
    picture.arrow((middle, y + 64), (around, y + 64), (around, y - 25), (edge + (1 if branch > 0 else -1), y - 25))


def _head(picture: Picture, x: float, *, bottom: float) -> None:
    """Draw the path from the top of the decoder to the logits."""
    middle = x + WIDTH / 2
    picture.arrow((middle, bottom), (middle, bottom - 71))
    _shape(picture, middle, bottom - 48, "B, T, D")
    _box(picture, x, bottom - 122, "output layer", "VocabularyHead", OUT)
    picture.arrow((middle, bottom - 122), (middle, bottom - 158))
    _shape(picture, middle, bottom - 136, "B, T, V")
    picture.text(middle, bottom - 168, "logits: a score for each next token", anchor="middle", bold=True)
    picture.text(middle, bottom - 186, "softmax turns them into probabilities", anchor="middle", colour=SOFT)


def _memory(picture: Picture, *, top: float) -> None:
    """Draw the arrow from the top of the encoder to the cross-attention."""
    start, turn, into = LEFT + WIDTH / 2, 448, FIRST - SUB_LAYER + 25
    picture.arrow((start, top), (start, top - 66), (turn, top - 66), (turn, into), (RIGHT - 1, into), colour=BLUE)
    picture.text(start + 8, top - 74, "memory", bold=True, colour=BLUE)
    picture.text(start + 70, top - 74, "B, S, D", colour=BLUE, size=11.5)
    picture.text(turn - 8, into - 2, "keys", colour=BLUE, size=11.5, anchor="end")
    picture.text(turn - 8, into + 12, "and values", colour=BLUE, size=11.5, anchor="end")


def _tie(picture: Picture) -> None:
    head = FIRST - 2 * SUB_LAYER - 36 - 97
    ends = f"M{LEFT + WIDTH},655H{RIGHT}M{RIGHT + WIDTH},655H872V{head}H{RIGHT + WIDTH}"
    picture.path(ends, stroke=PURPLE, width=1.6, dash="5 4")
    picture.text(446, 647, "one matrix,", colour=PURPLE, size=11.5, anchor="middle")
    picture.text(446, 671, "used three times", colour=PURPLE, size=11.5, anchor="middle")


def _box(picture: Picture, x: float, y: float, label: str, name: str, fill: str) -> None:
    picture.box(x, y, WIDTH, 50, fill=fill, stroke="#8c959f", round=7)
    picture.text(x + WIDTH / 2, y + 22, label, anchor="middle", bold=True, size=13)
    picture.text(x + WIDTH / 2, y + 39, name, anchor="middle", colour=SOFT, size=10.5, mono=True)


def _shape(picture: Picture, x: float, y: float, shape: str) -> None:
    picture.text(x + 10, y, shape, size=11, colour=SOFT)


def joins() -> str:
    picture = Picture(920, 300, "Three ways in which decoder layers read encoder layers: last, matching, mix")
    joins: list[tuple[str, str, str, list[tuple[int, int]]]] = [
        ("last", "every decoder layer reads", "the last encoder layer (2017)", [(3, i) for i in range(4)]),
        ("matching", "decoder layer i reads", "encoder layer i", [(i, i) for i in range(4)]),
        (
            "mix",
            "each reads its own learned",
            "average of all encoder layers",
            [(i, j) for i in range(4) for j in range(4)],
        ),
    ]
    for n, (name, first, second, pairs) in enumerate(joins):
        x = 40 + n * 296
        picture.text(x, 36, f'join = "{name}"', bold=True, mono=True)
        colour, width = ("#8fbfdc", 1.3) if name == "mix" else (BLUE, 2.0)
        for source, target in pairs:
            picture.path(f"M{x + 92},{_level(source)}L{x + 148},{_level(target)}", stroke=colour, width=width)
        for i in range(4):
            _layer(picture, x, _level(i), f"encoder {i + 1}", "#dcebf5")
            _layer(picture, x + 148, _level(i), f"decoder {i + 1}", "#fbe3d3")
        picture.text(x, 258, first, colour=SOFT)
        picture.text(x, 275, second, colour=SOFT)
    return str(picture)


def _level(i: int) -> float:
    return 208 - i * 48


def _layer(picture: Picture, x: float, middle: float, label: str, fill: str) -> None:
    picture.box(x, middle - 17, 92, 34, fill=fill, stroke="#8c959f", round=6)
    picture.text(x + 46, middle + 4, label, anchor="middle")
