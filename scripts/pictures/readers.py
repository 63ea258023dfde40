"""Encoders side by side: that of 2017, BERT and ViT."""

from columns import ATTENTION, COLUMNS, EMBED, FORWARD, NORM, OUT, Column, Part, draw
from svg import SOFT, Picture

ENCODER: list[Part] = [
    ("embedding × √D", "TokenEmbedding", EMBED),
    ("+ position, by formula", "Sinusoidal", EMBED),
    ("self-attention", "add, then norm", ATTENTION),
    ("D → F → D, ReLU", "add, then norm", FORWARD),
]
BERT: list[Part] = [
    ("word + segment + learned position", "TokenEmbedding, Learned", EMBED),
    ("layer norm", "LayerNorm", NORM),
    ("self-attention", "add, then norm", ATTENTION),
    ("D → F → D, GELU", "add, then norm", FORWARD),
    ("map, tanh · or map, GELU, norm", "Pooler, of [CLS] · or MaskedHead", NORM),
    ("to L labels · or the embedding again", "of [CLS], or of each token", OUT),
]
VIT: list[Part] = [
    ("a linear map of each patch", "PatchEmbedding", EMBED),
    ("[class] first, + learned position", "ClassToken, Learned", EMBED),
    ("self-attention", "layer norm, then add", ATTENTION),
    ("D → F → D, GELU", "layer norm, then add", FORWARD),
    ("layer norm", "LayerNorm", NORM),
    ("to L labels · or pixels · or places", "of [class], or of each patch", OUT),
]
LAYER = (2, 3)  # the places of its parts


def readers() -> str:
    words = "The encoder of 2017, BERT and ViT, from what they read to what they say of it"
    picture = Picture(984, 600, words)
    columns = [
        Column("encoder of 2017", "source ids", ENCODER, "memory, for the decoder", LAYER),
        Column("BERT", "[CLS] ids [SEP]", BERT, "a label · hidden words · labels of words", LAYER),
        Column("ViT", "an image, cut into patches", VIT, "a label · hidden patches · their places", LAYER),
    ]
    for x, column in zip(COLUMNS, columns, strict=True):
        draw(picture, x, column, bottom=514)
    picture.text(492, 582, "no mask but padding: every place sees every other", anchor="middle", colour=SOFT)
    return str(picture)
