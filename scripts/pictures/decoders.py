"""Draw the decoders of BART, T5 and the Universal Transformer side by side."""

from columns import ATTENTION, COLUMNS, EMBED, FORWARD, NORM, OUT, WIDTH, Column, Part, draw, top
from svg import BLUE, SOFT, Picture

BART: list[Part] = [
    ("embedding + learned position", "TokenEmbedding, Learned", EMBED),
    ("layer norm", "target_norm", NORM),
    ("causal self-attention", "add, then norm", ATTENTION),
    ("cross-attention", "add, then norm", ATTENTION),
    ("D → F → D, GELU", "add, then norm", FORWARD),
    None,
    ("output layer, tied, + a bias", "VocabularyHead, tied", OUT),
]
T5: list[Part] = [
    ("embedding", "TokenEmbedding", EMBED),
    None,
    ("self-attention + bias by distance", "RMS norm, then add", ATTENTION),
    ("cross-attention", "RMS norm, then add", ATTENTION),
    ("D → F → D, ReLU or gated GELU", "RMS norm, then add", FORWARD),
    ("RMS norm", "final_norm", NORM),
    ("× D^-½, output layer; 1.1: untied", "VocabularyHead", OUT),
]
UNIVERSAL: list[Part] = [
    ("embedding", "TokenEmbedding", EMBED),
    ("+ position, + step", "Recurrence", EMBED),
    ("causal self-attention", "add, then norm", ATTENTION),
    ("cross-attention", "add, then norm", ATTENTION),
    ("D → F → D, ReLU", "add, then norm", FORWARD),
    ("mean of steps, by halting probability", "Halting", NORM),
    ("output layer, tied to the embedding", "VocabularyHead, tied", OUT),
]
INPUTS, OUTPUTS = "target ids so far", "logits of the next token"


def decoders() -> str:
    title = "The decoders of BART, T5 and the Universal Transformer, from the target ids so far to the logits"
    picture = Picture(984, 640, title)
    draw(picture, COLUMNS[0], Column("BART", INPUTS, BART, OUTPUTS))
    draw(picture, COLUMNS[1], Column("T5", INPUTS, T5, OUTPUTS))
    times = "× as needed"
    draw(picture, COLUMNS[2], Column("Universal Transformer", INPUTS, UNIVERSAL, OUTPUTS, repeated=(1, 4), times=times))
    _recurrence(picture, COLUMNS[2])
    for x in COLUMNS:
        picture.text(x + WIDTH + 8, top(3) + 16, "memory", size=11, colour=SOFT)
        picture.arrow((x + WIDTH + 52, top(3) + 22), (x + WIDTH + 1, top(3) + 22), colour=BLUE)
    return str(picture)


def _recurrence(picture: Picture, x: float) -> None:
    """Draw the arrow from above the layer back to below it."""
    middle, start, end = x + WIDTH / 2, top(4) - 15, top(1) + 61
    picture.arrow((middle, start), (x - 27, start), (x - 27, end), (middle - 2, end), colour=BLUE)
