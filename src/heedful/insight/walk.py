"""The walk: every token on its way through the layers, each vector by its first numbers and its length.

The order of "Attention is all you need": embedding, x sqrt(d_model), + position, then in each layer q, k, v, what the
heads bring, W_O, add, norm, feed-forward. Scores and weights are with the attention maps, logits with the steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.model_layout import SELF, ModelLayout, StackLayout, anatomy
from heedful.insight.packed_arrays import Packed, pack
from heedful.insight.positions import position_code
from heedful.insight.trace import M, Place, Trace, scale_of, unwrap_attend
from heedful.models.universal import Universal
from heedful.nn.attention import MultiHeadAttention, share_heads

NUMBERS = 8
FEED_FORWARD = "feed_forward"


@dataclass(frozen=True)
class Vector:
    """(…, D) -> the first n numbers (…, n), and the length of the whole (…)."""

    first: Packed
    norm: Packed


@dataclass(frozen=True)
class Start:
    embedding: Vector | None
    scaled: Vector | None
    position: Vector | None
    input: Vector  # all that is added up
    norm: Vector | None  # a norm of it, where one follows: then that enters the first layer


@dataclass(frozen=True)
class HeadVectors:
    q: Vector  # (H, tokens)
    k: Vector
    v: Vector
    heads: Vector
    out: Vector  # (tokens)
    scale: float  # what q . k is multiplied by
    bias: bool


@dataclass(frozen=True)
class FeedForwardVectors:
    inner: Vector
    gate: Vector | None
    activated: Vector
    out: Vector


@dataclass(frozen=True)
class End:
    norm: Vector | None
    mean: Vector | None  # of steps that are weighted: what the Universal Transformer says in the end


Layer = dict[str, HeadVectors | FeedForwardVectors | Vector | None]


@dataclass(frozen=True)
class Stack:
    """One stack: what comes before its layers, each of them, what follows, and in which order a layer computes."""

    start: Start
    layers: tuple[Layer, ...]
    end: End
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Walk:
    numbers: int
    encoder: Stack | None  # None: the model has no such stack
    decoder: Stack | None


def walk_through(t: Trace[M], *, numbers: int = NUMBERS) -> Walk:
    """The walk of the last pass that was traced, a pass of one sentence; after the block, when `t` records no more."""
    assert not t.recording, "asking for the position code would be recorded as another pass"
    body = anatomy(t.model)
    encoder, decoder = (
        None if side is None else _Walker(t, body, side, text, numbers).walk()
        for side, text in ((body.encoder, "source"), (body.decoder, "target"))
    )
    return Walk(numbers, encoder, decoder)


class _Walker:
    """Goes through one of the stacks."""

    def __init__(self, t: Trace[M], body: ModelLayout, side: StackLayout, text: str, numbers: int) -> None:
        self.t = t
        self.body = body
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

    def start(self) -> Start:
        side, total = self.side, self.entering(self.places[0])
        if side.norm is not None:
            assert side.positions is not None
            total = self.t.at(side.positions)
        code = position_code(self.t.model, self.text, torch.arange(len(total), device=total.device))
        return Start(
            embedding=None if side.embedding is None else self.at(side.embedding.part("table")),
            scaled=None if side.embedding is None else self.at(side.embedding),
            position=None if code is None else self.vector(code),
            input=self.vector(total),
            norm=None if side.norm is None else self.at(side.norm),
        )

    def entering(self, layer: Place) -> Tensor:
        """What a layer reads: the input of what comes first in it, a norm or the first of its products."""
        first = f"{SELF}_residual.norm" if self.body.residual == "pre" else f"{SELF}.to_q"
        return self.t.at(layer.part(first).part("input"))

    def layer(self, place: Place) -> Layer:
        names = (*self.side.attentions, FEED_FORWARD)
        parts: Layer = {"input": self.vector(self.entering(place))}
        parts |= {name: self.attention(place.part(name)) for name in self.side.attentions}
        parts[FEED_FORWARD] = self.feed_forward(place.part(FEED_FORWARD))
        for name in names:
            residual = place.part(f"{name}_residual")
            # Where the sum stands: before a norm that comes last, or after a sub-layer that had the norm first.
            added = {"post": residual.part("norm.input"), "pre": residual, "none": None}[self.body.residual]
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

    def end(self) -> End:
        norm = self.side.final_norm
        mean = None
        if isinstance(self.t.model, Universal):  # what comes out of all steps is what is read from them
            reader = "decoder_layer.cross_attention.to_k.input" if self.text == "source" else "head.linear.input"
            mean = self.at(Place(reader))
        return End(norm=None if norm is None else self.at(norm), mean=mean)

    def steps(self) -> tuple[str, ...]:
        order = {"post": ("{}", "{}.added", "{}.norm"), "pre": ("{}.norm", "{}", "{}.added"), "none": ("{}", "{}.norm")}
        names = (*self.side.attentions, FEED_FORWARD)
        return tuple(step.format(name) for name in names for step in order[self.body.residual])

    def at(self, place: Place) -> Vector:
        return self.vector(self.t.at(place))

    def vector(self, x: Tensor) -> Vector:
        return Vector(
            first=pack(x[..., : self.numbers], "f32"),
            norm=pack(torch.linalg.vector_norm(x.double(), dim=-1), "f32"),
        )
