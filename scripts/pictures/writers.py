"""The decoders of BART, T5 and the Universal Transformer side by side."""

from columns import ATTENTION, COLUMNS, EMBED, FORWARD, NORM, OUT, WIDTH, Column, Part, draw, top
from svg import BLUE, SOFT, Picture

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
READS, SAYS = "target ids, so far", "logits of what follows"


def writers() -> str:
    words = "The decoders of BART, T5 and the Universal Transformer, from what is written so far to the logits"
    picture = Picture(984, 640, words)
    draw(picture, COLUMNS[0], Column("BART", READS, BART, SAYS))
    draw(picture, COLUMNS[1], Column("T5", READS, T5, SAYS))
    often = "× as often as needed"
    draw(picture, COLUMNS[2], Column("Universal Transformer", READS, UNIVERSAL, SAYS, repeated=(1, 4), times=often))
    _again(picture, COLUMNS[2])
    for x in COLUMNS:
        picture.text(x + WIDTH + 8, top(3) + 16, "memory", size=11, colour=SOFT)
        picture.arrow((x + WIDTH + 52, top(3) + 22), (x + WIDTH + 1, top(3) + 22), colour=BLUE)
    return str(picture)


def _again(picture: Picture, x: float) -> None:
    """From above the layer back to below it."""
    middle, start, end = x + WIDTH / 2, top(4) - 15, top(1) + 61
    picture.arrow((middle, start), (x - 27, start), (x - 27, end), (middle - 2, end), colour=BLUE)
