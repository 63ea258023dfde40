"""The decoders of BART, T5 and the Universal Transformer side by side, bottom to top."""

from svg import BLUE, INK, SOFT, Picture

ATTENTION, FORWARD, NORM, EMBED, OUT = "#dcebf5", "#fbe3d3", "#eef1f4", "#d9f0e8", "#f3e3ec"
WIDTH = 232  # of a box
COLUMNS = (40, 364, 688)  # left edges of the boxes
BOTTOM, RISE = 580, 66  # of the ids, and from one box to the next above it

Part = tuple[str, str, str] | None

BART: list[Part] = [
    ("embedding + learned position", "TokenEmbedding, Learned", EMBED),
    ("layer norm", "target_norm", NORM),
    ("causal self-attention", "add, then norm", ATTENTION),
    ("cross-attention", "add, then norm", ATTENTION),
    ("D → F → D, GELU", "add, then norm", FORWARD),
    None,
    ("the embedding again, + a bias", "VocabularyHead, tied", OUT),
]
T5: list[Part] = [
    ("embedding", "TokenEmbedding", EMBED),
    None,
    ("self-attention + bias by distance", "RMS norm, then add", ATTENTION),
    ("cross-attention", "RMS norm, then add", ATTENTION),
    ("D → F → D, ReLU or gated GELU", "RMS norm, then add", FORWARD),
    ("RMS norm", "final_norm", NORM),
    ("× D^-½ and the embedding; 1.1: its own", "VocabularyHead", OUT),
]
UNIVERSAL: list[Part] = [
    ("embedding", "TokenEmbedding", EMBED),
    ("+ position, + step", "Recurrence", EMBED),
    ("causal self-attention", "add, then norm", ATTENTION),
    ("cross-attention", "add, then norm", ATTENTION),
    ("D → F → D, ReLU", "add, then norm", FORWARD),
    ("mean of all steps, by chance of stopping", "Halting", NORM),
    ("the embedding again", "VocabularyHead, tied", OUT),
]


def writers() -> str:
    words = "The decoders of BART, T5 and the Universal Transformer, from what is written so far to the logits"
    picture = Picture(984, 640, words)
    for x, name, parts in zip(COLUMNS, ("BART", "T5", "Universal Transformer"), (BART, T5, UNIVERSAL), strict=True):
        _model(picture, x, name, parts)
    _again(picture, COLUMNS[2])
    for x in COLUMNS:
        picture.text(x + WIDTH + 8, _top(3) + 16, "memory", size=11, colour=SOFT)
        picture.arrow((x + WIDTH + 52, _top(3) + 22), (x + WIDTH + 1, _top(3) + 22), colour=BLUE)
    return str(picture)


def _model(picture: Picture, x: float, name: str, parts: list[Part]) -> None:
    middle = x + WIDTH / 2
    picture.text(middle, 42, name, size=15, anchor="middle", bold=True)
    picture.text(middle, BOTTOM + 34, "target ids, so far", anchor="middle", bold=True)
    first = 1 if name.startswith("U") else 2  # of the parts that come again
    picture.box(x - 16, _top(4) - 10, WIDTH + 32, _top(first) - _top(4) + 66, fill="none", stroke="#b8c1ca", round=12)
    times = "× as often as needed" if name.startswith("U") else "× N"
    picture.text(x + WIDTH + 8, _top(first) + 53, times, size=11, anchor="end", bold=True)
    below = BOTTOM + 18
    for place, part in enumerate(parts):
        if part is None:
            continue
        words, code, fill = part
        y = _top(place)
        picture.arrow((middle, below), (middle, y + 43))
        picture.box(x, y, WIDTH, 42, fill=fill, stroke="#b8c1ca", round=7)
        picture.text(middle, y + 18, words, size=12, anchor="middle", colour=INK)
        picture.text(middle, y + 34, code, size=10.5, anchor="middle", colour=SOFT, mono=True)
        below = y
    picture.arrow((middle, below), (middle, below - 24))
    picture.text(middle, below - 32, "logits of what follows", anchor="middle", bold=True)


def _again(picture: Picture, x: float) -> None:
    """From above the layer back to below it."""
    middle, start, end = x + WIDTH / 2, _top(4) - 15, _top(1) + 61
    picture.arrow((middle, start), (x - 27, start), (x - 27, end), (middle - 2, end), colour=BLUE)


def _top(place: int) -> float:
    return BOTTOM - 42 - place * RISE
