"""Layer by layer: what the model would say if it stopped there.

The logit lens reads the decoder's vectors after each layer with the model's own head (nostalgebraist 2020). DecoderLens
lets the whole decoder read the output of an earlier encoder layer in place of the memory (Langedijk et al. 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from heedful.insight.beams import MemoryStep, write_greedily
from heedful.insight.outputs import LensStep, lens_steps
from heedful.insight.trace import Trace
from heedful.models.seq2seq import Memory, Seq2Seq
from heedful.text import Tokenizer


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
    encoder = tuple(
        _encoder_lens(model, layer, states, source, target_in, ids, mask, tokenizer)
        for layer, states in enumerate(read)
    )
    return Lens(decoder, encoder)


def _said(model: Seq2Seq, states: Tensor) -> Tensor:
    norm = model.decoder.final_norm
    logits: Tensor = model.head(states if norm is None else norm(states))
    return logits  # (1, T, V)


def _encoder_lens(
    model: Seq2Seq,
    layer: int,
    states: Tensor,
    source: Sequence[int],
    target_in: Tensor,
    ids: Sequence[int],
    mask: Tensor,
    tokenizer: Tokenizer,
) -> EncoderLayerLens:
    norm = model.encoder.final_norm
    memory = Memory([states if norm is None else norm(states)], mask)
    written = write_greedily(MemoryStep(model, memory), source, max_len=len(ids) + 20)
    return EncoderLayerLens(
        layer=layer,
        text=tokenizer.decode(written),
        tokens=tuple(tokenizer.pieces(written)),
        ids=tuple(written),
        steps=lens_steps(model.decode(target_in, memory)[0], ids, tokenizer),
    )
