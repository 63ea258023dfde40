"""Look inside a BERT or a ViT while it reads one text or one image.

look = look_at_encoder("runs/bert", "A [MASK] runs.")
look.weights                # (layers, H, T, T); for an image, row 0 is the class token, the patches follow
look.save("attention.svg")  # for an image: the attention of the class token, drawn over the image
"""

import math
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.data.images import Pixels, read_image
from heedful.decoding.classifier import Classifier, Labelled, LabelledWord
from heedful.decoding.encoder_inputs import encode_words, image_tensor, make_row, masked_ids
from heedful.decoding.fill_mask import FillMask, MaskCandidate
from heedful.decoding.input_text import checked
from heedful.errors import UserError
from heedful.insight.attention_maps import AttentionMaps, TokenAttention, attention_maps
from heedful.insight.attention_plot import draw_attention
from heedful.insight.image_overlay import data_url, overlay_picture, overlay_png
from heedful.insight.inputs import ModelFacts, model_facts
from heedful.insight.look import SourceText
from heedful.insight.look_file import Arrays, LookFile, attention_arrays, trace_values
from heedful.insight.positions import Positions, position_facts
from heedful.insight.trace import trace
from heedful.insight.walk import Walk, walk_through
from heedful.insight.word_spans import word_spans
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_info import find_model_folder, wrong_family
from heedful.models.model_io import load_model
from heedful.models.vit import Vit
from heedful.text import Tokenizer
from heedful.text.tokenizer import generated_pieces

LONGEST = 256  # tokens; attention maps grow quadratically
Answer = tuple[tuple[MaskCandidate, ...], ...] | tuple[Labelled, ...] | tuple[LabelledWord, ...]


@dataclass(frozen=True)
class EncoderLook(LookFile):
    """Everything about one pass of an encoder over a text or an image."""

    model: ModelFacts
    source: SourceText  # for an image: its name, and one token for the class and for each patch, row by row
    attention: AttentionMaps
    answer: Answer  # candidates for each masked word, labels of the whole, a label for each word, or nothing
    masked: tuple[int, ...]  # positions of the mask tokens
    positions: Positions
    walk: Walk
    tensors: dict[str, Tensor] = field(repr=False)  # every named tensor of the pass (Trace.tensors)
    pixels: Pixels | None = field(default=None, repr=False)  # (C, H, W): the image at the model's resolution

    @property
    def input_text(self) -> str:
        """The text, or the file name of the image."""
        return self.source.text

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.source.tokens

    @property
    def weights(self) -> Tensor:
        """The attention weights (layers, H, T, T), float32; each row sums to one."""
        return torch.from_numpy(self.attention.weights.values)

    @property
    def side(self) -> int:
        """The number of patches in a row of the image."""
        return math.isqrt(len(self.tokens) - 1)

    def over_image(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """Return the attention weights of the class token on each patch, (rows, columns).

        `layer` and `head` count from 1; the default is the last layer and the mean of its heads.
        """
        chosen = self.weights[(layer or len(self.weights)) - 1]
        row = chosen.mean(dim=0)[0] if head is None else chosen[head - 1, 0]
        return row[1:].reshape(self.side, self.side)

    def rollout(self) -> Tensor:
        """Return the attention rollout of the class token on each patch, (rows, columns).

        Rollout multiplies the attention matrices of all layers (means over the heads), each averaged with the identity
        for the residual connection (Abnar & Zuidema 2020).
        """
        rollout = torch.eye(len(self.tokens))
        for weights in self.weights:
            rollout = (0.5 * weights.mean(dim=0) + 0.5 * torch.eye(len(self.tokens))) @ rollout
        return rollout[0, 1:].reshape(self.side, self.side)

    def to_values(self) -> dict[str, object]:
        """Return the object of the trace file: an encoder without a decoder."""
        image = None
        if self.pixels is not None:
            image = {"url": data_url(self.pixels), "rows": self.side, "columns": self.side}
        return trace_values(
            {
                "model": self.model,
                "source": self.source,
                "attention": {"encoder": self.attention},
                "positions": self.positions,
                "walk": self.walk,
                "answer": self._answers(),
                "image": image,
            }
        )

    def save(self, path: str | Path, *, layer: int | None = None, head: int | None = None) -> Path:
        """Write a page (.html), the trace file (.json), all arrays (.npz) or a picture (.svg, .png, .pdf).

        A picture shows one `layer` and `head`, counted from 1; the default is the last layer and the mean of its heads.
        """
        return self._save(Path(path), layer=layer, head=head, kind="encoder")

    def token_attention(self) -> TokenAttention:
        """Return the weights with their tokens, for a picture."""
        return TokenAttention(self.tokens, self.tokens, self.weights)

    def _answers(self) -> list[dict[str, object]]:
        """Return the answers of the trace file: a token position (None for labels of the whole) and its candidates."""
        labels = [
            {"token": label.label, "probability": label.score} for label in self.answer if isinstance(label, Labelled)
        ]
        answers: list[dict[str, object]] = [{"place": None, "top": labels}] if labels else []
        words = [candidates for candidates in self.answer if isinstance(candidates, tuple)]
        for position, candidates in zip(self.masked, words, strict=True):
            top = [{"token": candidate.token_text, "probability": candidate.score} for candidate in candidates]
            answers.append({"place": position, "top": top})
        for word in self.answer:
            if isinstance(word, LabelledWord):
                answers.append({"place": word.position, "top": [{"token": word.label, "probability": word.score}]})
        return answers

    def _draw(self, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str) -> None:
        if self.pixels is None:
            draw_attention(self.token_attention(), file, format, layer=layer, head=head, kind=kind)
        elif format == "svg":
            picture = overlay_picture(self.pixels, self.weights, self.rollout(), layer=layer, head=head)
            file.write(picture.encode("utf-8", "replace"))
        elif format == "png":
            overlay_png(self.pixels, self.over_image(layer, head), file)
        else:
            raise UserError("the attention over an image can be drawn as .svg or .png, not as .pdf")

    def _arrays(self) -> Arrays:
        arrays = {"source_ids": np.array(self.source.ids), **attention_arrays({"encoder": self.attention})}
        return arrays if self.pixels is None else {**arrays, "pixels": self.pixels}


@torch.no_grad()
def look_at_encoder(model: str | Path, text_or_image: str) -> EncoderLook:
    """Run a BERT on a text, or a ViT on an image file, and record everything that happens inside."""
    folder = find_model_folder(model)
    loaded = load_model(folder)
    name = Path(model).resolve().name
    if isinstance(loaded.model, Vit):
        return _look_at_image(loaded.model, text_or_image, name)
    if not isinstance(loaded.model, Bert):
        raise wrong_family(folder, loaded.family, "bert", "vit")
    if loaded.tokenizers is None:
        raise UserError(f"{folder}: the model has no tokenizer, so it cannot read text")
    return _look_at_text(loaded.model, loaded.tokenizers.source, text_or_image, name, where=str(folder))


def _look_at_text(model: Bert, tokenizer: Tokenizer, text: str, name: str, *, where: str) -> EncoderLook:
    config = model.config
    text = checked(text, 0)
    ids = _ids(tokenizer, text, config)
    row = make_row(ids, config).ids
    limit = min(LONGEST, config.max_len) - 2  # without the start and end token
    if len(ids) > limit:
        raise UserError(f"look: the text has {len(ids)} tokens, and look shows {limit} at most: give one sentence")
    answer: Answer = ()
    masked = tuple(
        position for position, id in enumerate(row) if id == config.special_ids.mask_id and config.head == "masked"
    )
    if masked:
        answer = tuple(tuple(candidates) for candidates in FillMask(model, tokenizer, where=where).fill(text))
    elif config.head == "classify":
        answer = tuple(Classifier(model, tokenizer).classify([text])[0])
    elif config.head == "tag":
        answer = tuple(Classifier(model, tokenizer).label_words([text])[0])
    tokens = tuple(generated_pieces(tokenizer, row))
    source = SourceText(text, tokens, tuple(row), tuple(word_spans(tokens)), masked=())
    return _traced(model, torch.tensor([row]), source, name, answer=answer, masked=masked)


def _ids(tokenizer: Tokenizer, text: str, config: BertConfig) -> list[int]:
    """Tokenize a text for the head of the model: with mask tokens, word by word, or as a whole."""
    if config.head == "masked" and config.special_ids.mask_id is not None:
        return masked_ids(tokenizer, text, mask_id=config.special_ids.mask_id)
    if config.head == "tag":
        return list(chain.from_iterable(encode_words(tokenizer, text.split())))
    return tokenizer.encode(text)


def _look_at_image(model: Vit, file: str, name: str) -> EncoderLook:
    config = model.config
    side = config.image_size // config.patch_size
    patches = [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
    positions = tuple(range(1 + len(patches)))
    return _traced(
        model,
        image_tensor(model, [file]),
        SourceText(Path(file).name, ("class", *patches), positions, tuple((i, i + 1) for i in positions), masked=()),
        name,
        answer=tuple(Classifier(model).classify([file])[0]) if config.head == "classify" else (),
        pixels=read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize),
    )


def _traced(
    model: Bert | Vit,
    inputs: Tensor,
    source: SourceText,
    name: str,
    *,
    answer: Answer,
    masked: tuple[int, ...] = (),
    pixels: Pixels | None = None,
) -> EncoderLook:
    with trace(model) as t:
        t.model(inputs)
    return EncoderLook(
        model=model_facts(t, name),
        source=source,
        attention=attention_maps(t)["encoder"],
        answer=answer,
        masked=masked,
        positions=position_facts(model, len(source.tokens)),
        walk=walk_through(t),
        tensors=t.tensors(),
        pixels=pixels,
    )
