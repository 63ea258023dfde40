"""Look at an encoder while it reads one text or one image: who attends to whom, and what it answers.

seen = look_encoder("runs/bert", "A [MASK] runs.")
seen.weights                # (layers, H, T, T); of an image the class token is row 0, its patches follow
seen.save("attention.svg")  # of an image: the attention of the class token, laid over it
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.config import to_values
from heedful.data.images import Pixels, read_image
from heedful.decoding.encoders.classify import Classifier, Labelled, LabelledToken
from heedful.decoding.encoders.fill import Candidate, Filler
from heedful.decoding.encoders.images import image_tensor
from heedful.decoding.encoders.rows import make_row, masked_ids
from heedful.errors import UserError, one_of
from heedful.files import file_aside
from heedful.insight.attention import CrossAttention
from heedful.insight.overlay import overlay_picture, overlay_png
from heedful.insight.packing import pack, to_plain
from heedful.insight.picture import attention_picture
from heedful.insight.plot import plot_attention
from heedful.models.bert import Bert
from heedful.models.find import find_model_folder, wrong_family
from heedful.models.folder import load_model
from heedful.models.vit import Vit
from heedful.nn.record import record_attention
from heedful.text import Tokenizer

FORMAT, VERSION = "heedful-encoder-trace", 1
LONGEST = 256  # tokens; attention is quadratic, and a picture must stay readable
SUFFIXES = (".json", ".npz", ".svg", ".png", ".pdf")
Answer = tuple[tuple[Candidate, ...], ...] | tuple[Labelled, ...] | tuple[LabelledToken, ...]


@dataclass(frozen=True)
class EncoderLook:
    """What an encoder did with one text or image."""

    family: str
    config: dict[str, object]
    given: str  # the text, or the name of the image file
    tokens: tuple[str, ...]
    weights: Tensor = field(repr=False)  # (layers, H, T, T), float32; each row sums to one
    answer: Answer  # for each hidden word its candidates; or labels; or a label for each token; or nothing
    pixels: Pixels | None = field(default=None, repr=False)  # (C, H, W) of the image, as the model got it

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

    def to_json(self) -> str:
        values = {
            "format": FORMAT,
            "version": VERSION,
            "family": self.family,
            "config": self.config,
            "given": self.given,
            "tokens": list(self.tokens),
            "attention": pack(self.weights, "u16").to_json(),
            "answer": to_plain(self.answer),
        }
        return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def save(self, path: str | Path, *, layer: int | None = None, head: int | None = None) -> Path:
        """By its suffix: .json and .npz everything, .svg .png .pdf a picture; `layer` and `head` count from 1."""
        path = Path(path)
        check_encoder_suffix(path)
        writers: dict[str, Callable[[BinaryIO], object]] = {
            ".json": lambda file: file.write(self.to_json().encode("utf-8", "replace") + b"\n"),
            ".npz": self._write_npz,
            ".svg": lambda file: file.write(self._svg(layer, head).encode("utf-8", "replace")),
            ".png": lambda file: self._plot(file, "png", layer, head),
            ".pdf": lambda file: self._plot(file, "pdf", layer, head),
        }
        with file_aside(path) as file:
            writers[path.suffix.lower()](file)
        return path

    def maps(self) -> CrossAttention:
        """For the pictures that attention of texts has."""
        return CrossAttention(self.tokens, self.tokens, self.weights)

    def _svg(self, layer: int | None, head: int | None) -> str:
        if self.pixels is None:
            return attention_picture(self.maps(), layer=layer, head=head, kind="encoder")
        return overlay_picture(self.pixels, self.weights, self.rollout(), layer=layer, head=head)

    def _plot(self, file: BinaryIO, format: str, layer: int | None, head: int | None) -> None:
        if self.pixels is None:
            plot_attention(self.maps(), file, format=format, layer=layer, head=head, kind="encoder")
        elif format == "png":
            overlay_png(self.pixels, self.over_image(layer, head), file)
        else:
            raise UserError("an image and its attention are written as .svg or .png, not as .pdf")

    def _write_npz(self, file: BinaryIO) -> None:
        arrays = {
            "trace": np.frombuffer(self.to_json().encode("utf-8", "replace"), np.uint8),
            "attention": self.weights.numpy(),
        }
        if self.pixels is not None:
            arrays["pixels"] = self.pixels
        np.savez_compressed(file, allow_pickle=False, **arrays)


def check_encoder_suffix(path: Path) -> None:
    """Complain of what cannot work before the model is asked."""
    if path.suffix.lower() not in SUFFIXES:
        raise one_of(f"{path}: the suffix says what to write", path.suffix, SUFFIXES)
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(f"{path}: {what}; name a file in a folder that is there")


@torch.no_grad()
def look_encoder(model: str | Path, given: str) -> EncoderLook:
    """Read one text, or one image file, and keep every attention of every layer and head."""
    folder = find_model_folder(model)
    loaded = load_model(folder)
    if isinstance(loaded.model, Vit):
        return _look_at_image(loaded.model, given, folder)
    if not isinstance(loaded.model, Bert):
        raise wrong_family(folder, loaded.family, "bert", "vit")
    if loaded.tokenizers is None:
        raise UserError(f"{folder}: has no tokenizer: it takes ids only, and there is no text to look at")
    return _look_at_text(loaded.model, loaded.tokenizers.source, given, folder)


def _look_at_text(model: Bert, tokenizer: Tokenizer, text: str, folder: Path) -> EncoderLook:
    config = model.config
    ids = masked_ids(tokenizer, text, mask_id=config.mask_id) if config.head == "masked" else tokenizer.encode(text)
    row = make_row(ids, config).ids
    if len(ids) + 2 > min(LONGEST, config.max_len):
        most = min(LONGEST, config.max_len) - 2
        raise UserError(f"look: the text has {len(ids)} tokens, and look shows {most} at most: give one sentence")
    twin, records = record_attention(model)
    twin.states(torch.tensor([row]))
    answer: Answer = ()
    if config.head == "masked" and config.mask_id in ids:
        answer = tuple(tuple(place) for place in Filler(model, tokenizer, where=str(folder)).fill(text))
    elif config.head == "classify":
        answer = tuple(Classifier(model, tokenizer).classify([text])[0])
    elif config.head == "label_tokens":
        answer = tuple(Classifier(model, tokenizer).label_tokens([text])[0])
    return EncoderLook(
        family="bert",
        config=to_values(config),
        given=text,
        tokens=tuple(tokenizer.pieces(row)),
        weights=_weights(records, len(model.encoder.layers)),
        answer=answer,
    )


def _look_at_image(model: Vit, file: str, folder: Path) -> EncoderLook:
    config = model.config
    twin, records = record_attention(model)
    twin.states(image_tensor(model, [file]))
    side = config.image_size // config.patch_size
    patches = [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
    return EncoderLook(
        family="vit",
        config=to_values(config),
        given=file,
        tokens=("class", *patches),
        weights=_weights(records, len(model.encoder.layers)),
        answer=tuple(Classifier(model).classify([file])[0]) if config.head == "classify" else (),
        pixels=read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize),
    )


def _weights(records: dict[str, list[Tensor]], n_layers: int) -> Tensor:
    layers = [records[f"encoder.layers.{i}.attention"][-1][0] for i in range(n_layers)]
    return torch.stack(layers).float().cpu()
