"""Draw three encoders side by side: that of the 2017 Transformer, BERT and ViT."""

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
    ("linear, tanh · or linear, GELU, norm", "Pooler, of [CLS] · or MaskedHead", NORM),
    ("to L labels · or to the vocabulary", "of [CLS], or of each token", OUT),
]
VIT: list[Part] = [
    ("linear projection of each patch", "PatchEmbedding", EMBED),
    ("[class] first, + learned position", "ClassToken, Learned", EMBED),
    ("self-attention", "layer norm, then add", ATTENTION),
    ("D → F → D, GELU", "layer norm, then add", FORWARD),
    ("layer norm", "LayerNorm", NORM),
    ("to L labels · or pixels · or positions", "of [class], or of each patch", OUT),
]
LAYER = (2, 3)  # first and last index of a layer's parts


def encoders() -> str:
    title = "The encoder of 2017, BERT and ViT, from their inputs to their outputs"
    picture = Picture(984, 600, title)
    columns = [
        Column("encoder of 2017", "source ids", ENCODER, "memory, for the decoder", LAYER),
        Column("BERT", "[CLS] ids [SEP]", BERT, "a label · masked tokens · token labels", LAYER),
        Column("ViT", "an image, split into patches", VIT, "a label · masked patches · their positions", LAYER),
    ]
    for x, column in zip(COLUMNS, columns, strict=True):
        draw(picture, x, column, bottom=514)
    picture.text(492, 582, "no mask but padding: every position sees every other", anchor="middle", colour=SOFT)
    return str(picture)
