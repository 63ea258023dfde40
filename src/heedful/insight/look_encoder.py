"""Look at an encoder while it reads one text or one image: who attends to whom, and what it answers.

seen = look_encoder("runs/bert", "A [MASK] runs.")
seen.weights                # (layers, H, T, T); of an image the class token is row 0, its patches follow
seen.save("attention.svg")  # of an image: the attention of the class token, laid over it
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
from heedful.decoding.fill_mask import Candidate, FillMask
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

LONGEST = 256  # tokens; attention is quadratic, and a picture must stay readable
Answer = tuple[tuple[Candidate, ...], ...] | tuple[Labelled, ...] | tuple[LabelledWord, ...]


@dataclass(frozen=True)
class EncoderLook(LookFile):
    """Everything about one text or image that an encoder read."""

    model: ModelFacts
    source: SourceText  # of an image: its name, and a token for the class and each patch, row by row
    attention: AttentionMaps
    answer: Answer  # for each hidden word its candidates; or labels; or a label for each word; or nothing
    hidden: tuple[int, ...]  # which tokens are hidden words
    positions: Positions
    walk: Walk
    tensors: dict[str, Tensor] = field(repr=False)  # all named tensors of the pass (Trace.tensors)
    pixels: Pixels | None = field(default=None, repr=False)  # (C, H, W) of the image, as the model got it

    @property
    def given(self) -> str:
        return self.source.text

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.source.tokens

    @property
    def weights(self) -> Tensor:
        """(layers, H, T, T), float32; each row sums to one."""
        return torch.from_numpy(self.attention.weights.values)

    @property
    def side(self) -> int:
        """Of an image: how many patches there are in a row."""
        return math.isqrt(len(self.tokens) - 1)

    def over_image(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """How much the class token attends to each patch, (rows, columns); counted from 1, by default the last layer
        and the mean of its heads.
        """
        chosen = self.weights[(layer or len(self.weights)) - 1]
        row = chosen.mean(dim=0)[0] if head is None else chosen[head - 1, 0]
        return row[1:].reshape(self.side, self.side)

    def rollout(self) -> Tensor:
        """What reaches the class token through all layers, the residual counted half (Abnar & Zuidema 2020)."""
        reach = torch.eye(len(self.tokens))
        for weights in self.weights:
            reach = (0.5 * weights.mean(dim=0) + 0.5 * torch.eye(len(self.tokens))) @ reach
        return reach[0, 1:].reshape(self.side, self.side)

    def to_values(self) -> dict[str, object]:
        """The object of the trace file: that of an encoder without a decoder."""
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

        A picture shows one `layer` and `head`, counted from 1; by default the last layer and the mean of its heads.
        """
        return self._save(Path(path), layer=layer, head=head, kind="encoder")

    def maps(self) -> TokenAttention:
        """For the pictures that attention of texts has."""
        return TokenAttention(self.tokens, self.tokens, self.weights)

    def _answers(self) -> list[dict[str, object]]:
        """As the trace file has them: of which token, and what is likeliest; labels of the whole have no token."""
        labels = [{"token": one.label, "probability": one.score} for one in self.answer if isinstance(one, Labelled)]
        found: list[dict[str, object]] = [{"place": None, "top": labels}] if labels else []
        words = [one for one in self.answer if isinstance(one, tuple)]
        for place, candidates in zip(self.hidden, words, strict=True):
            top = [{"token": one.token_text, "probability": one.score} for one in candidates]
            found.append({"place": place, "top": top})
        for one in self.answer:
            if isinstance(one, LabelledWord):
                found.append({"place": one.place, "top": [{"token": one.label, "probability": one.score}]})
        return found

    def _draw(self, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str) -> None:
        if self.pixels is None:
            draw_attention(self.maps(), file, format, layer=layer, head=head, kind=kind)
        elif format == "svg":
            picture = overlay_picture(self.pixels, self.weights, self.rollout(), layer=layer, head=head)
            file.write(picture.encode("utf-8", "replace"))
        elif format == "png":
            overlay_png(self.pixels, self.over_image(layer, head), file)
        else:
            raise UserError("an image and its attention can be written as .svg or .png, not as .pdf")

    def _arrays(self) -> Arrays:
        arrays = {"source_ids": np.array(self.source.ids), **attention_arrays({"encoder": self.attention})}
        return arrays if self.pixels is None else {**arrays, "pixels": self.pixels}


@torch.no_grad()
def look_encoder(model: str | Path, given: str) -> EncoderLook:
    """Read one text, or one image file, and keep all that happens."""
    folder = find_model_folder(model)
    loaded = load_model(folder)
    name = Path(model).resolve().name
    if isinstance(loaded.model, Vit):
        return _look_at_image(loaded.model, given, name)
    if not isinstance(loaded.model, Bert):
        raise wrong_family(folder, loaded.family, "bert", "vit")
    if loaded.tokenizers is None:
        raise UserError(f"{folder}: has no tokenizer: it takes ids only, and there is no text to look at")
    return _look_at_text(loaded.model, loaded.tokenizers.source, given, name, where=str(folder))


def _look_at_text(model: Bert, tokenizer: Tokenizer, text: str, name: str, *, where: str) -> EncoderLook:
    config = model.config
    text = checked(text, 0)
    ids = _ids(tokenizer, text, config)
    row = make_row(ids, config).ids
    if len(ids) + 2 > min(LONGEST, config.max_len):
        most = min(LONGEST, config.max_len) - 2
        raise UserError(f"look: the text has {len(ids)} tokens, and look shows {most} at most: give one sentence")
    answer: Answer = ()
    hidden = tuple(
        place for place, id in enumerate(row) if id == config.special_ids.mask_id and config.head == "masked"
    )
    if hidden:
        answer = tuple(tuple(place) for place in FillMask(model, tokenizer, where=where).fill(text))
    elif config.head == "classify":
        answer = tuple(Classifier(model, tokenizer).classify([text])[0])
    elif config.head == "tag":
        answer = tuple(Classifier(model, tokenizer).label_words([text])[0])
    tokens = tuple(generated_pieces(tokenizer, row))
    source = SourceText(text, tokens, tuple(row), tuple(word_spans(tokens)), masked=())
    return _seen(model, torch.tensor([row]), source, name, answer=answer, hidden=hidden)


def _ids(tokenizer: Tokenizer, text: str, config: BertConfig) -> list[int]:
    """As the head reads a text: with hidden words, or word by word, or as a whole."""
    if config.head == "masked" and config.special_ids.mask_id is not None:
        return masked_ids(tokenizer, text, mask_id=config.special_ids.mask_id)
    if config.head == "tag":
        return list(chain.from_iterable(encode_words(tokenizer, text.split())))
    return tokenizer.encode(text)


def _look_at_image(model: Vit, file: str, name: str) -> EncoderLook:
    config = model.config
    side = config.image_size // config.patch_size
    patches = [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
    numbers = tuple(range(1 + len(patches)))
    return _seen(
        model,
        image_tensor(model, [file]),
        SourceText(Path(file).name, ("class", *patches), numbers, tuple((i, i + 1) for i in numbers), masked=()),
        name,
        answer=tuple(Classifier(model).classify([file])[0]) if config.head == "classify" else (),
        pixels=read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize),
    )


def _seen(
    model: Bert | Vit,
    given: Tensor,
    source: SourceText,
    name: str,
    *,
    answer: Answer,
    hidden: tuple[int, ...] = (),
    pixels: Pixels | None = None,
) -> EncoderLook:
    with trace(model) as t:
        t.model(given)
    return EncoderLook(
        model=model_facts(t, name),
        source=source,
        attention=attention_maps(t)["encoder"],
        answer=answer,
        hidden=hidden,
        positions=position_facts(model, len(source.tokens)),
        walk=walk_through(t),
        tensors=t.tensors(),
        pixels=pixels,
    )
