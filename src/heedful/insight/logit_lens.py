"""Layer by layer: what the model would say if it stopped there.

The logit lens reads the decoder's vectors after each layer with the model's own head (nostalgebraist 2020). DecoderLens
lets the whole decoder read the output of an earlier encoder layer in place of the memory (Langedijk et al. 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from heedful.insight.beam_tree import MemoryStep, write_greedily
from heedful.insight.model_layout import StackLayout, Writer, anatomy
from heedful.insight.predictions import LensStep, lens_steps
from heedful.insight.trace import M, Trace
from heedful.models.universal import Universal
from heedful.nn.recording import structural_copy
from heedful.nn.stacks import Memory
from heedful.text import Tokenizer
from heedful.text.tokenizer import decode_generated, generated_pieces

W = TypeVar("W", bound=Writer)
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
    t: Trace[W],
    source: Sequence[int],
    source_ids: Tensor,
    target_in: Tensor,
    ids: Sequence[int],
    memory: Memory,
    tokenizer: Tokenizer,
) -> Lens:
    """Both lenses on the traced pass of one sentence; `t` no longer records.

    `source` are the ids of the text alone, `source_ids` (1, S) and `target_in` (1, T) what the model read, `ids` what
    came; `memory` what the encoder left.
    """
    assert not t.recording, "what the lenses ask of the model would be recorded as further passes"
    assert memory.mask is not None
    model = t.model
    if isinstance(model, Universal):
        read, said = _stopped_reading(model, t, source_ids, memory.mask), _stopped_writing(model, t, target_in, memory)
    else:
        read, said = encoder_states(t), said_by_layer(t)
    decoder = tuple(DecoderLayerLens(layer, lens_steps(one, ids, tokenizer)) for layer, one in enumerate(said))
    return Lens(decoder, _encoder_lenses(model, read, source, target_in, ids, memory.mask, tokenizer))


def encoder_states(t: Trace[M]) -> Tensor:
    """What a decoder would read if the encoder ended before its first layer, or after each: (layers + 1, S, D)."""
    side = anatomy(t.model).side("encoder")
    return _normed(t, side, torch.stack([t.at(place) for place in (side.entry, *side.places(t))]))


def said_by_layer(t: Trace[M]) -> list[Tensor]:
    """The logits (T, V) if the decoder ended before its first layer, or after each."""
    body = anatomy(t.model)
    side = body.side("decoder")
    head = t.model.get_submodule("head")
    states = [_normed(t, side, t.at(place)[None]) * body.output_scale for place in (side.entry, *side.places(t))]
    return [head(one)[0] for one in states]


def _normed(t: Trace[M], side: StackLayout, states: Tensor) -> Tensor:
    if side.final_norm is None:
        return states
    normed: Tensor = t.model.get_submodule(side.final_norm.path)(states)
    return normed


def _stopped_reading(model: Universal, t: Trace[M], source_ids: Tensor, mask: Tensor) -> Tensor:
    """A Universal Transformer that may take fewer steps says what it would have said there, halting and all."""
    side = anatomy(model).side("encoder")
    states = [t.at(side.entry)[None]]
    for place in side.places(t):
        twin = structural_copy(model)
        twin.encoder_steps.n_steps = place.call + 1
        states += twin.encode(source_ids, mask[:, 0, 0]).states
    return torch.cat(states)


def _stopped_writing(model: Universal, t: Trace[M], target_in: Tensor, memory: Memory) -> list[Tensor]:
    side = anatomy(model).side("decoder")
    said = [model.head(t.at(side.entry))]
    for place in side.places(t):
        twin = structural_copy(model)
        twin.decoder_steps.n_steps = place.call + 1
        said.append(twin.decode(target_in, memory)[0])
    return said


def _encoder_lenses(
    model: Writer,
    states: Tensor,
    source: Sequence[int],
    target_in: Tensor,
    ids: Sequence[int],
    mask: Tensor,
    tokenizer: Tokenizer,
) -> tuple[EncoderLayerLens, ...]:
    """states (layers, S, D): each layer stands in the batch as if it were a sentence of its own."""
    layers = len(states)
    memory = Memory([states], mask.expand(layers, -1, -1, -1))
    written = write_greedily(MemoryStep(model, memory), source, max_len=len(ids) + MORE)
    logits = model.decode(target_in.expand(layers, -1), memory)  # (layers, T, V)
    return tuple(
        EncoderLayerLens(
            layer=layer,
            text=decode_generated(tokenizer, written[layer]),
            tokens=tuple(generated_pieces(tokenizer, written[layer])),
            ids=tuple(written[layer]),
            steps=lens_steps(logits[layer], ids, tokenizer),
        )
        for layer in range(layers)
    )
