"""The walk: every token on its way through the layers, each vector by its first numbers and its length.

The order of "Attention is all you need": embedding, x sqrt(d_model), + position, then in each layer q, k, v, what the
heads bring, W_O, add, norm, feed-forward. Scores and weights are with the attention maps, logits with the steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.packing import Packed, pack
from heedful.insight.places import position_code
from heedful.insight.trace import Trace
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.attention import share_heads

NUMBERS = 8

SELF, CROSS, FEED_FORWARD = "attention", "cross_attention", "feed_forward"


@dataclass(frozen=True)
class Vector:
    """(…, D) -> the first n numbers (…, n), and the length of the whole (…)."""

    first: Packed
    norm: Packed


@dataclass(frozen=True)
class Start:
    embedding: Vector
    scaled: Vector
    position: Vector | None
    input: Vector


@dataclass(frozen=True)
class HeadVectors:
    q: Vector  # (H, tokens)
    k: Vector
    v: Vector
    heads: Vector
    out: Vector  # (tokens)
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


Layer = dict[str, HeadVectors | FeedForwardVectors | Vector | None]


@dataclass(frozen=True)
class Walk:
    numbers: int
    encoder_start: Start
    decoder_start: Start
    encoder: tuple[Layer, ...]
    decoder: tuple[Layer, ...]
    encoder_end: End
    decoder_end: End
    encoder_steps: tuple[str, ...]
    decoder_steps: tuple[str, ...]


def walk_through(t: Trace[Seq2Seq], *, numbers: int = NUMBERS) -> Walk:
    """The walk of the last pass that was traced, a pass of one sentence; after the block, when `t` records no more."""
    assert not t.recording, "asking for the position code would be recorded as another pass"
    return _Walker(t, numbers).walk()


class _Walker:
    def __init__(self, t: Trace[Seq2Seq], numbers: int) -> None:
        self.t = t
        self.numbers = numbers
        self.config = t.model.config

    def walk(self) -> Walk:
        model = self.t.model
        return Walk(
            numbers=self.numbers,
            encoder_start=self.start("source"),
            decoder_start=self.start("target"),
            encoder=tuple(self.layer(f"encoder.layers.{i}", (SELF,)) for i in range(len(model.encoder.layers))),
            decoder=tuple(self.layer(f"decoder.layers.{i}", (SELF, CROSS)) for i in range(len(model.decoder.layers))),
            encoder_end=End(self.maybe("encoder.final_norm")),
            decoder_end=End(self.maybe("decoder.final_norm")),
            encoder_steps=self.steps((SELF,)),
            decoder_steps=self.steps((SELF, CROSS)),
        )

    def start(self, side: str) -> Start:
        model, scaled = self.t.model, self.t[f"{side}_embedding"]
        module = model.source_positions if side == "source" else model.target_positions
        code = position_code(module, torch.arange(scaled.size(1), device=scaled.device), model)
        return Start(
            embedding=self.vector(self.t[f"{side}_embedding.table"][0]),
            scaled=self.vector(scaled[0]),
            position=None if code is None else self.vector(code),
            input=self.vector(self.t[f"{side}_positions"][0]),
        )

    def layer(self, path: str, attentions: tuple[str, ...]) -> Layer:
        parts: Layer = {}
        for name in attentions:
            parts[name] = self.attention(f"{path}.{name}")
        parts[FEED_FORWARD] = self.feed_forward(f"{path}.{FEED_FORWARD}")
        for name in (*attentions, FEED_FORWARD):
            residual = f"{path}.{name}_residual"
            # Where the sum stands: before a norm that comes last, or after a sub-layer that had the norm first.
            added = {"post": f"{residual}.norm.input", "pre": residual, "none": None}[self.config.residual]
            parts[f"{name}.added"] = None if added is None else self.vector(self.t[added][0])
            parts[f"{name}.norm"] = self.vector(self.t[f"{residual}.norm"][0])
        return parts

    def attention(self, path: str) -> HeadVectors:
        t, n_heads = self.t, self.config.n_heads
        return HeadVectors(
            q=self.vector(t[f"{path}.q"][0]),
            k=self.vector(share_heads(t[f"{path}.k"], n_heads)[0]),
            v=self.vector(share_heads(t[f"{path}.v"], n_heads)[0]),
            heads=self.vector(t[f"{path}.heads"][0]),
            out=self.vector(t[path][0]),
            bias=f"{path}.bias" in t.calls,
        )

    def feed_forward(self, path: str) -> FeedForwardVectors:
        return FeedForwardVectors(
            inner=self.vector(self.t[f"{path}.inner"][0]),
            gate=self.maybe(f"{path}.gate"),
            activated=self.vector(self.t[f"{path}.outer.input"][0]),
            out=self.vector(self.t[path][0]),
        )

    def steps(self, attentions: tuple[str, ...]) -> tuple[str, ...]:
        order = {"post": ("{}", "{}.added", "{}.norm"), "pre": ("{}.norm", "{}", "{}.added"), "none": ("{}", "{}.norm")}
        return tuple(step.format(name) for name in (*attentions, FEED_FORWARD) for step in order[self.config.residual])

    def maybe(self, name: str) -> Vector | None:
        return self.vector(self.t[name][0]) if name in self.t.calls else None

    def vector(self, x: Tensor) -> Vector:
        return Vector(
            first=pack(x[..., : self.numbers], "f32"),
            norm=pack(torch.linalg.vector_norm(x.double(), dim=-1), "f32"),
        )
