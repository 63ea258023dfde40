"""Layer by layer: what the model would say if it stopped there.

The logit lens reads the decoder's vectors after each layer with the model's own head (nostalgebraist 2020). DecoderLens
lets the whole decoder read the output of an earlier encoder layer in place of the memory (Langedijk et al. 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.beams import MemoryStep, write_greedily
from heedful.insight.outputs import LensStep, lens_steps
from heedful.insight.trace import Trace
from heedful.models.memory import Memory
from heedful.models.seq2seq import Seq2Seq
from heedful.text import Tokenizer

MORE = 20  # tokens beyond the shown translation that an encoder layer may write: an early one may never end


@dataclass(frozen=True)
class DecoderLayerLens:
    layer: int  # 0: before the first layer
    steps: tuple[LensStep, ...]


@dataclass(frozen=True)
class EncoderLayerLens:
    layer: int
    text: str  # what the decoder writes greedily from this layer's output
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    steps: tuple[LensStep, ...]  # forced along the target


@dataclass(frozen=True)
class Lens:
    decoder: tuple[DecoderLayerLens, ...]
    encoder: tuple[EncoderLayerLens, ...]


def look_through(
    t: Trace[Seq2Seq], source: Sequence[int], target_in: Tensor, ids: Sequence[int], mask: Tensor, tokenizer: Tokenizer
) -> Lens:
    """Both lenses on the traced pass of one sentence; `t` no longer records."""
    assert not t.recording, "what the lenses ask of the model would be recorded as further passes"
    model = t.model
    n_encoder, n_decoder = len(model.encoder.layers), len(model.decoder.layers)
    written = [t["target_positions"], *(t[f"decoder.layers.{i}"] for i in range(n_decoder))]
    read = [t["source_positions"], *(t[f"encoder.layers.{i}"] for i in range(n_encoder))]
    decoder = tuple(
        DecoderLayerLens(layer, lens_steps(_said(model, states)[0], ids, tokenizer))
        for layer, states in enumerate(written)
    )
    return Lens(decoder, _encoder_lenses(model, torch.cat(read), source, target_in, ids, mask, tokenizer))


def _said(model: Seq2Seq, states: Tensor) -> Tensor:
    norm = model.decoder.final_norm
    logits: Tensor = model.head(states if norm is None else norm(states))
    return logits  # (1, T, V)


def _encoder_lenses(
    model: Seq2Seq,
    states: Tensor,
    source: Sequence[int],
    target_in: Tensor,
    ids: Sequence[int],
    mask: Tensor,
    tokenizer: Tokenizer,
) -> tuple[EncoderLayerLens, ...]:
    """states (layers, S, D): each layer stands in the batch as if it were a sentence of its own."""
    norm = model.encoder.final_norm
    layers = len(states)
    memory = Memory([states if norm is None else norm(states)], mask.expand(layers, -1, -1, -1))
    written = write_greedily(MemoryStep(model, memory), source, max_len=len(ids) + MORE)
    logits = model.decode(target_in.expand(layers, -1), memory)  # (layers, T, V)
    return tuple(
        EncoderLayerLens(
            layer=layer,
            text=tokenizer.decode(written[layer]),
            tokens=tuple(tokenizer.pieces(written[layer])),
            ids=tuple(written[layer]),
            steps=lens_steps(logits[layer], ids, tokenizer),
        )
        for layer in range(layers)
    )
