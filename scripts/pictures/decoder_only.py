"""Draw decoder-only models: one layer of GPT-2 beside one of Llama, from bottom to top."""

from svg import BLUE, INK, SOFT, Picture

ATTENTION, FORWARD, NORM, EMBED, OUT = "#dcebf5", "#fbe3d3", "#eef1f4", "#d9f0e8", "#f3e3ec"
WIDTH = 250  # of a box
COLUMNS = (110, 520)  # left edges of the boxes
BOTTOM, RISE = 600, 62  # height of the ids' label, and distance from one box to the next


def gpt() -> str:
    picture = Picture(890, 690, "A layer of GPT-2 and a layer of Llama, side by side, from the ids to the logits")
    _model(picture, COLUMNS[0], "GPT-2", [
        ("embedding", "TokenEmbedding", EMBED), ("+ learned positions", "Learned", EMBED),
        ("layer norm", "LayerNorm", NORM), ("causal self-attention", "MultiHeadAttention, biases", ATTENTION),
        ("layer norm", "LayerNorm", NORM), ("D → F → D, GELU", "FeedForward, biases", FORWARD),
        ("layer norm", "final_norm", NORM), ("output layer, tied to the embedding", "VocabularyHead, tied", OUT),
    ])  # fmt: skip
    _model(picture, COLUMNS[1], "Llama", [
        ("embedding", "TokenEmbedding", EMBED), None,
        ("RMS norm", "RMSNorm", NORM), ("causal self-attention, q, k rotated", "Rotary, fewer key heads", ATTENTION),
        ("RMS norm", "RMSNorm", NORM), ("gate × inner → D, SiLU", "GatedFeedForward", FORWARD),
        ("RMS norm", "final_norm", NORM), ("output layer", "VocabularyHead", OUT),
    ])  # fmt: skip
    picture.text(445, 668, "x + f(norm(x)): every part adds to the residual stream", anchor="middle", colour=SOFT)
    return str(picture)


def _model(picture: Picture, x: float, name: str, parts: list[tuple[str, str, str] | None]) -> None:
    middle = x + WIDTH / 2
    picture.text(middle, 42, name, size=15, anchor="middle", bold=True)
    picture.text(middle, BOTTOM + 34, "ids", anchor="middle", bold=True)
    picture.box(x - 66, _top(5) - 14, WIDTH + 110, _top(2) - _top(5) + 72, fill="none", stroke="#b8c1ca", round=12)
    picture.text(x + WIDTH + 36, _top(5) + 6, "× N", anchor="end", bold=True)
    below = BOTTOM + 18
    for index, part in enumerate(parts):
        if part is None:
            continue
        y = _top(index)
        label, code, fill = part
        picture.arrow((middle, below), (middle, y + 45))
        picture.box(x, y, WIDTH, 44, fill=fill, stroke="#b8c1ca", round=7)
        picture.text(middle, y + 19, label, anchor="middle", colour=INK)
        picture.text(middle, y + 35, code, size=10.5, anchor="middle", colour=SOFT, mono=True)
        below = y
    for first in (2, 4):  # the residual path: from below the norm, around both boxes, to above them
        start, end = _top(first) + 53, _top(first + 1) - 8
        picture.arrow((middle, start), (x - 34, start), (x - 34, end), (middle - 2, end), colour=BLUE)
    picture.arrow((middle, below), (middle, below - 24))
    picture.text(middle, below - 32, "logits of the next token", anchor="middle", bold=True)


def _top(index: int) -> float:
    return BOTTOM - 44 - index * RISE
