"""The walk: the vectors of every token through the layers, each shown by its first numbers and its norm.

The vectors are in the order of "Attention is all you need": embedding, × sqrt(d_model), + position, then in each layer
q, k, v, the output of the heads, W_O, add, norm, feed-forward. Scores and weights are part of the attention maps, and
logits of the output steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.model_layout import SELF, ModelLayout, StackLayout, model_layout
from heedful.insight.packed_arrays import Packed, pack
from heedful.insight.positions import position_code
from heedful.insight.trace import M, Place, Trace, scale_of, unwrap_attend
from heedful.models.universal import Universal
from heedful.nn.attention import MultiHeadAttention, share_heads

NUMBERS = 8  # numbers shown of each vector
FEED_FORWARD = "feed_forward"


@dataclass(frozen=True)
class Vector:
    """Vectors (…, D), shown by their first n numbers (…, n) and their L2 norms (…)."""

    first: Packed
    norm: Packed


@dataclass(frozen=True)
class WalkStart:
    """The vectors before the first layer."""

    embedding: Vector | None
    scaled: Vector | None
    position: Vector | None
    input: Vector  # the sum
    norm: Vector | None  # the norm of the sum, if the model has one there; it is then the input of the first layer


@dataclass(frozen=True)
class HeadVectors:
    """The vectors of one attention."""

    q: Vector  # (H, tokens)
    k: Vector
    v: Vector
    heads: Vector
    out: Vector  # (tokens)
    scale: float  # factor of q · k
    bias: bool  # whether a bias is added to the scaled scores


@dataclass(frozen=True)
class FeedForwardVectors:
    """The vectors of one feed-forward network."""

    inner: Vector
    gate: Vector | None
    activated: Vector
    out: Vector


@dataclass(frozen=True)
class WalkEnd:
    """The vectors after the last layer."""

    norm: Vector | None
    mean: Vector | None  # of a Universal Transformer with halting: the weighted mean of its steps


Layer = dict[str, HeadVectors | FeedForwardVectors | Vector | None]


@dataclass(frozen=True)
class Stack:
    """One stack: the vectors before, in and after its layers, and the order in which a layer computes them."""

    start: WalkStart
    layers: tuple[Layer, ...]
    end: WalkEnd
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Walk:
    """The walk of one sentence; a stack that the model lacks is None."""

    numbers: int  # numbers shown of each vector
    encoder: Stack | None
    decoder: Stack | None


def walk_through(t: Trace[M], *, numbers: int = NUMBERS) -> Walk:
    """Return the walk of the last traced pass of one sentence. `t` must have stopped recording."""
    assert not t.recording, "computing the position code would be recorded as another pass"
    layout = model_layout(t.model)
    encoder, decoder = (
        None if side is None else _Walker(t, layout, side, text, numbers).walk()
        for side, text in ((layout.encoder, "source"), (layout.decoder, "target"))
    )
    return Walk(numbers, encoder, decoder)


class _Walker:
    """Collects the vectors of one stack."""

    def __init__(self, t: Trace[M], layout: ModelLayout, side: StackLayout, text: str, numbers: int) -> None:
        self.t = t
        self.layout = layout
        self.side = side
        self.text = text
        self.places = side.places(t)
        self.numbers = numbers

    def walk(self) -> Stack:
        return Stack(
            start=self.start(),
            layers=tuple(self.layer(place) for place in self.places),
            end=self.end(),
            steps=self.steps(),
        )

    def start(self) -> WalkStart:
        side, total = self.side, self.entering(self.places[0])
        if side.norm is not None:
            assert side.positions is not None
            total = self.t.at(side.positions)
        code = position_code(self.t.model, self.text, torch.arange(len(total), device=total.device))
        return WalkStart(
            embedding=None if side.embedding is None else self.at(side.embedding.part("table")),
            scaled=None if side.embedding is None else self.at(side.embedding),
            position=None if code is None else self.vector(code),
            input=self.vector(total),
            norm=None if side.norm is None else self.at(side.norm),
        )

    def entering(self, layer: Place) -> Tensor:
        """Return the input of a layer: the input of its first module, a norm or the projection to q."""
        first = f"{SELF}_residual.norm" if self.layout.residual == "pre" else f"{SELF}.to_q"
        return self.t.at(layer.part(first).part("input"))

    def layer(self, place: Place) -> Layer:
        names = (*self.side.attentions, FEED_FORWARD)
        parts: Layer = {"input": self.vector(self.entering(place))}
        parts |= {name: self.attention(place.part(name)) for name in self.side.attentions}
        parts[FEED_FORWARD] = self.feed_forward(place.part(FEED_FORWARD))
        for name in names:
            residual = place.part(f"{name}_residual")
            # Post-norm adds before the norm, pre-norm after the sub-layer.
            added = {"post": residual.part("norm.input"), "pre": residual, "none": None}[self.layout.residual]
            parts[f"{name}.added"] = None if added is None else self.at(added)
            parts[f"{name}.norm"] = self.at(residual.part("norm"))
        return parts

    def attention(self, place: Place) -> HeadVectors:
        t, module = self.t, self.t.model.get_submodule(place.path)
        assert isinstance(module, MultiHeadAttention)
        return HeadVectors(
            q=self.at(place.part("q")),
            k=self.vector(share_heads(t.at(place.part("k"))[None], module.n_heads)[0]),
            v=self.vector(share_heads(t.at(place.part("v"))[None], module.n_heads)[0]),
            heads=self.at(place.part("heads")),
            out=self.at(place),
            scale=scale_of(unwrap_attend(module.attend), module.d_head, module.scale),
            bias=t.has(place.part("bias")),
        )

    def feed_forward(self, place: Place) -> FeedForwardVectors:
        return FeedForwardVectors(
            inner=self.at(place.part("inner")),
            gate=self.at(place.part("gate")) if self.t.has(place.part("gate")) else None,
            activated=self.at(place.part("outer.input")),
            out=self.at(place),
        )

    def end(self) -> WalkEnd:
        norm = self.side.final_norm
        mean = None
        if isinstance(self.t.model, Universal):  # the weighted mean is the input of the module that reads the stack
            reader = "decoder_layer.cross_attention.to_k.input" if self.text == "source" else "head.linear.input"
            mean = self.at(Place(reader))
        return WalkEnd(norm=None if norm is None else self.at(norm), mean=mean)

    def steps(self) -> tuple[str, ...]:
        order = {"post": ("{}", "{}.added", "{}.norm"), "pre": ("{}.norm", "{}", "{}.added"), "none": ("{}", "{}.norm")}
        names = (*self.side.attentions, FEED_FORWARD)
        return tuple(step.format(name) for name in names for step in order[self.layout.residual])

    def at(self, place: Place) -> Vector:
        return self.vector(self.t.at(place))

    def vector(self, x: Tensor) -> Vector:
        return Vector(
            first=pack(x[..., : self.numbers], "f32"),
            norm=pack(torch.linalg.vector_norm(x.double(), dim=-1), "f32"),
        )
