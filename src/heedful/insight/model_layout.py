"""The module paths and settings of each model family, so that the rest of `insight` does not depend on the family.

A trace names tensors by module paths, and these differ: BART has a norm after its embeddings, a Universal Transformer
calls one layer repeatedly, GPT has no encoder.
"""

import itertools
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from heedful.insight.trace import M, Place, Trace
from heedful.models.bart import Bart
from heedful.models.bert import Bert
from heedful.models.gpt import Gpt
from heedful.models.seq2seq import Seq2Seq
from heedful.models.t5 import T5
from heedful.models.universal import Universal
from heedful.models.vit import Vit
from heedful.nn.attention import MultiHeadAttention

Writer: TypeAlias = Seq2Seq | Bart | T5 | Universal  # the encoder-decoders

SELF, CROSS = "attention", "cross_attention"
KINDS = ("encoder", "decoder", "cross")
# stack, the text that it reads, its attentions
STACKS = (("encoder", "source", (SELF,)), ("decoder", "target", (SELF, CROSS)))


@dataclass(frozen=True)
class StackLayout:
    """One stack of layers and the modules before its first layer."""

    layers: str  # the path of a layer, with {} for its index, or of the one layer that is called in every step
    embedding: Place | None = None  # the scaled rows of the embedding table; None for images
    positions: Place | None = None  # the embedding with the position code added
    norm: Place | None = None  # a norm between the embedding and the first layer
    final_norm: Place | None = None
    attentions: tuple[str, ...] = (SELF,)

    def places(self, t: Trace[M]) -> list[Place]:
        """List the layers of a traced pass; a shared layer is listed once for each call."""
        if "{}" not in self.layers:
            return [Place(self.layers, call) for call in range(len(t.calls[self.layers]))]
        paths = map(self.layers.format, itertools.count())
        return [Place(path) for path in itertools.takewhile(t.calls.__contains__, paths)]

    @property
    def entry(self) -> Place:
        """Return the last module before the first layer: its output is the input of the stack."""
        return next(place for place in (self.norm, self.positions, self.embedding) if place is not None)


@dataclass(frozen=True)
class ModelLayout:
    """The stacks of a model and the settings that all families have in common."""

    encoder: StackLayout | None
    decoder: StackLayout | None
    residual: str  # "pre", "post", "none"
    norm: str
    positions: str
    hides: str = "by mask"  # how self-attention masks keys: "by mask", "the future" (causal) or "by pattern"
    vocab_size: int | None = None  # of the output
    output_scale: float = 1.0  # factor of the last hidden state before the output layer

    def side(self, name: str) -> StackLayout:
        side = self.encoder if name == "encoder" else self.decoder
        assert side is not None, f"this model has no {name}"
        return side


def model_layout(model: nn.Module) -> ModelLayout:
    """Describe a model of any family."""
    if isinstance(model, Seq2Seq):
        return _seq2seq(model)
    if isinstance(model, Bart):
        return _bart(model)
    if isinstance(model, T5):
        return _t5(model)
    return _universal(model) if isinstance(model, Universal) else _one_stack(model)


def _seq2seq(model: Seq2Seq) -> ModelLayout:
    config = model.config
    encoder, decoder = (
        StackLayout(
            layers=f"{stack}.layers.{{}}",
            embedding=Place(f"{text}_embedding"),
            positions=Place(f"{text}_positions"),
            final_norm=Place(f"{stack}.final_norm") if config.residual == "pre" else None,
            attentions=attentions,
        )
        for stack, text, attentions in STACKS
    )
    return ModelLayout(
        encoder,
        decoder,
        residual=config.residual,
        norm=config.norm,
        positions=config.positions,
        hides="by mask" if config.pattern.kind in ("full", "additive") else "by pattern",
        vocab_size=config.target_vocab_size,
    )


def _bart(model: Bart) -> ModelLayout:
    encoder, decoder = (
        StackLayout(
            layers=f"{stack}.layers.{{}}",
            embedding=Place("embedding", call),  # one table embeds both texts: call 0 is the source
            positions=Place(f"{text}_positions"),
            norm=Place(f"{text}_norm"),
            attentions=attentions,
        )
        for call, (stack, text, attentions) in enumerate(STACKS)
    )
    return ModelLayout(
        encoder, decoder, residual="post", norm="layer", positions="learned", vocab_size=model.config.vocab_size
    )


def _t5(model: T5) -> ModelLayout:
    encoder, decoder = (
        StackLayout(
            layers=f"{stack}.layers.{{}}",
            embedding=Place("embedding", call),
            final_norm=Place(f"{stack}.final_norm"),
            attentions=attentions,
        )
        for call, (stack, _, attentions) in enumerate(STACKS)
    )
    return ModelLayout(
        encoder,
        decoder,
        residual="pre",
        norm="rms",
        positions="relative",
        vocab_size=model.config.vocab_size,
        output_scale=model.config.output_scale,
    )


def _universal(model: Universal) -> ModelLayout:
    encoder, decoder = (
        StackLayout(layers=f"{stack}_layer", embedding=Place(f"{text}_embedding"), attentions=attentions)
        for stack, text, attentions in STACKS
    )
    vocab_size = model.config.target_vocab_size
    return ModelLayout(encoder, decoder, residual="post", norm="layer", positions="sinusoidal", vocab_size=vocab_size)


def _one_stack(model: nn.Module) -> ModelLayout:
    if isinstance(model, Gpt):
        config = model.config
        return ModelLayout(
            None,
            StackLayout(
                layers="layers.{}",
                embedding=Place("embedding"),
                positions=Place("positions"),
                final_norm=Place("final_norm"),
            ),
            residual="pre",
            norm=config.norm,
            positions=config.positions,
            hides="the future",
            vocab_size=config.vocab_size,
        )
    layers, positions = "encoder.layers.{}", Place("positions")
    if isinstance(model, Bert):
        side = StackLayout(layers=layers, embedding=Place("embedding"), positions=positions, norm=Place("norm"))
        vocab_size = model.config.vocab_size
        return ModelLayout(side, None, residual="post", norm="layer", positions="learned", vocab_size=vocab_size)
    assert isinstance(model, Vit), f"{type(model).__name__}: unknown model family"
    side = StackLayout(layers=layers, positions=positions, final_norm=Place("encoder.final_norm"))
    return ModelLayout(side, None, residual="pre", norm="layer", positions="learned")


def n_layers(model: nn.Module, kind: str) -> int:
    """Count the layers that have this kind of attention; a shared layer counts once."""
    return len(_layers(model, kind))


def attention_at(model: nn.Module, kind: str, layer: int) -> MultiHeadAttention:
    """Return the attention module of one kind ("encoder", "decoder" or "cross") in one layer."""
    attention = getattr(_layers(model, kind)[layer], CROSS if kind == "cross" else SELF)
    assert isinstance(attention, MultiHeadAttention)
    return attention


def _layers(model: nn.Module, kind: str) -> list[nn.Module]:
    layers = model_layout(model).side("encoder" if kind == "encoder" else "decoder").layers
    if "{}" not in layers:
        return [model.get_submodule(layers)]
    stack = model.get_submodule(layers.removesuffix(".{}"))
    assert isinstance(stack, nn.ModuleList)
    return list(stack)
