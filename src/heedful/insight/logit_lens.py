"""Predictions layer by layer, as if the model ended after each layer.

The logit lens applies the output layer to the decoder's hidden states after each layer (nostalgebraist 2020).
DecoderLens gives the decoder the output of an earlier encoder layer as its memory (Langedijk et al. 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from heedful.insight.beam_tree import MemoryStep, write_greedily
from heedful.insight.model_layout import StackLayout, Writer, model_layout
from heedful.insight.predictions import LensStep, lens_steps
from heedful.insight.trace import M, Trace
from heedful.models.universal import Universal
from heedful.nn.recording import structural_copy
from heedful.nn.stacks import Memory
from heedful.text import Tokenizer
from heedful.text.tokenizer import decode_generated, generated_pieces

W = TypeVar("W", bound=Writer)
MORE = 20  # tokens decoded beyond the length of the shown translation; from an early layer decoding may never end


@dataclass(frozen=True)
class DecoderLayerLens:
    """The logit lens after one decoder layer."""

    layer: int  # 0: before the first layer
    steps: tuple[LensStep, ...]


@dataclass(frozen=True)
class EncoderLayerLens:
    """What the decoder predicts if it reads the output of one encoder layer as its memory (DecoderLens)."""

    layer: int
    text: str  # the greedy translation from this layer's output
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    steps: tuple[LensStep, ...]  # teacher-forced along the target


@dataclass(frozen=True)
class Lens:
    """Both lenses of one sentence."""

    decoder: tuple[DecoderLayerLens, ...]
    encoder: tuple[EncoderLayerLens, ...]


def layer_lenses(
    t: Trace[W],
    source: Sequence[int],
    source_ids: Tensor,
    target_in: Tensor,
    ids: Sequence[int],
    memory: Memory,
    tokenizer: Tokenizer,
) -> Lens:
    """Compute both lenses for a traced sentence. `t` must have stopped recording.

    `source` holds the ids of the text alone, `source_ids` (1, S) and `target_in` (1, T) the model's inputs, `ids` (T)
    the target tokens, `memory` the encoder's output.
    """
    assert not t.recording, "the passes of the lenses would be recorded"
    assert memory.mask is not None
    model = t.model
    if isinstance(model, Universal):
        states = _encoder_states_by_steps(model, t, source_ids, memory.mask)
        logits = _logits_by_steps(model, t, target_in, memory)
    else:
        states, logits = encoder_layer_states(t), logits_by_layer(t)
    decoder = tuple(
        DecoderLayerLens(layer, lens_steps(of_layer, ids, tokenizer)) for layer, of_layer in enumerate(logits)
    )
    return Lens(decoder, _encoder_lenses(model, states, source, target_in, ids, memory.mask, tokenizer))


def encoder_layer_states(t: Trace[M]) -> Tensor:
    """Return the memory as if the encoder ended before its first layer and after each layer, (layers + 1, S, D)."""
    side = model_layout(t.model).side("encoder")
    return _normed(t, side, torch.stack([t.at(place) for place in (side.entry, *side.places(t))]))


def logits_by_layer(t: Trace[M]) -> list[Tensor]:
    """Return the logits (T, V) as if the decoder ended before its first layer and after each layer."""
    layout = model_layout(t.model)
    side = layout.side("decoder")
    head = t.model.get_submodule("head")
    states = [_normed(t, side, t.at(place)[None]) * layout.output_scale for place in (side.entry, *side.places(t))]
    return [head(of_layer)[0] for of_layer in states]


def _normed(t: Trace[M], side: StackLayout, states: Tensor) -> Tensor:
    if side.final_norm is None:
        return states
    normed: Tensor = t.model.get_submodule(side.final_norm.path)(states)
    return normed


def _encoder_states_by_steps(model: Universal, t: Trace[M], source_ids: Tensor, mask: Tensor) -> Tensor:
    """Run the encoder of a Universal Transformer with every smaller limit of steps, so that halting still applies."""
    side = model_layout(model).side("encoder")
    states = [t.at(side.entry)[None]]
    for place in side.places(t):
        twin = structural_copy(model)
        twin.encoder_steps.n_steps = place.call + 1
        states += twin.encode(source_ids, mask[:, 0, 0]).states
    return torch.cat(states)


def _logits_by_steps(model: Universal, t: Trace[M], target_in: Tensor, memory: Memory) -> list[Tensor]:
    side = model_layout(model).side("decoder")
    logits = [model.head(t.at(side.entry))]
    for place in side.places(t):
        twin = structural_copy(model)
        twin.decoder_steps.n_steps = place.call + 1
        logits.append(twin.decode(target_in, memory)[0])
    return logits


def _encoder_lenses(
    model: Writer,
    states: Tensor,
    source: Sequence[int],
    target_in: Tensor,
    ids: Sequence[int],
    mask: Tensor,
    tokenizer: Tokenizer,
) -> tuple[EncoderLayerLens, ...]:
    """Decode from `states` (layers, S, D), with the layers as the batch."""
    layers = len(states)
    memory = Memory([states], mask.expand(layers, -1, -1, -1))
    decoded = write_greedily(MemoryStep(model, memory), source, max_len=len(ids) + MORE)
    logits = model.decode(target_in.expand(layers, -1), memory)  # (layers, T, V)
    return tuple(
        EncoderLayerLens(
            layer=layer,
            text=decode_generated(tokenizer, decoded[layer]),
            tokens=tuple(generated_pieces(tokenizer, decoded[layer])),
            ids=tuple(decoded[layer]),
            steps=lens_steps(logits[layer], ids, tokenizer),
        )
        for layer in range(layers)
    )
