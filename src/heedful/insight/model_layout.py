"""Where each family keeps what a look shows, and what its settings are in common words: all else is written once.

A trace calls things by the paths of modules, and these differ: a BART has a norm after its embeddings, a Universal
Transformer one layer that is called again and again, a GPT no encoder at all.
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

Writer: TypeAlias = Seq2Seq | Bart | T5 | Universal  # reads one text and writes another

SELF, CROSS = "attention", "cross_attention"
KINDS = ("encoder", "decoder", "cross")
# stack, the text that it reads, its attentions
STACKS = (("encoder", "source", (SELF,)), ("decoder", "target", (SELF, CROSS)))


@dataclass(frozen=True)
class StackLayout:
    """One stack of layers, and what comes before the first."""

    layers: str  # the path of a layer by its number, or of the one layer that is called for each step
    embedding: Place | None = None  # the rows of a table, times a scale; an image has none
    positions: Place | None = None  # with the code of the position added, where one is
    norm: Place | None = None  # what stands between that and the first layer
    final_norm: Place | None = None
    attentions: tuple[str, ...] = (SELF,)

    def places(self, t: Trace[M]) -> list[Place]:
        """Each layer of a traced pass: a shared one stands there as often as it was called."""
        if "{}" not in self.layers:
            return [Place(self.layers, call) for call in range(len(t.calls[self.layers]))]
        paths = map(self.layers.format, itertools.count())
        return [Place(path) for path in itertools.takewhile(t.calls.__contains__, paths)]

    @property
    def entry(self) -> Place:
        """What is ready for the first layer."""
        return next(place for place in (self.norm, self.positions, self.embedding) if place is not None)


@dataclass(frozen=True)
class ModelLayout:
    """What there is to see in a model."""

    encoder: StackLayout | None
    decoder: StackLayout | None
    residual: str  # "pre", "post", "none"
    norm: str
    positions: str
    hides: str = "by mask"  # which keys a self-attention hides: those of its mask, "the future" or "by pattern"
    vocab_size: int | None = None  # of what is written
    output_scale: float = 1.0  # what the last vector is multiplied by before the output layer

    def side(self, name: str) -> StackLayout:
        side = self.encoder if name == "encoder" else self.decoder
        assert side is not None, f"this model has no {name}"
        return side


def anatomy(model: nn.Module) -> ModelLayout:
    """By the family: what stands where."""
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
            embedding=Place("embedding", call),  # one table reads both texts, the source first
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
    assert isinstance(model, Vit), f"{type(model).__name__}: of no family that there is"
    side = StackLayout(layers=layers, positions=positions, final_norm=Place("encoder.final_norm"))
    return ModelLayout(side, None, residual="pre", norm="layer", positions="learned")


def n_layers(model: nn.Module, kind: str) -> int:
    """How many layers of their own a kind of attention stands in: one that is shared counts once."""
    return len(_layers(model, kind))


def attention_at(model: nn.Module, kind: str, layer: int) -> MultiHeadAttention:
    found = getattr(_layers(model, kind)[layer], CROSS if kind == "cross" else SELF)
    assert isinstance(found, MultiHeadAttention)
    return found


def _layers(model: nn.Module, kind: str) -> list[nn.Module]:
    layers = anatomy(model).side("encoder" if kind == "encoder" else "decoder").layers
    if "{}" not in layers:
        return [model.get_submodule(layers)]
    stack = model.get_submodule(layers.removesuffix(".{}"))
    assert isinstance(stack, nn.ModuleList)
    return list(stack)
