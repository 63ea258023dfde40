"""A model with some of its heads taken out: what did they do?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from heedful.errors import UserError, one_of
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.attention import Attend, MultiHeadAttention
from heedful.nn.record import structural_copy

KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Head:
    """One attention head; layers and heads are counted from 0."""

    kind: str
    layer: int
    head: int


def as_heads(model: Seq2Seq, heads: Iterable[tuple[str, int, int] | Head]) -> tuple[Head, ...]:
    """The heads that are meant, each once, or a UserError that says which there are."""
    found: dict[Head, None] = {}
    for given in heads:
        head = given if isinstance(given, Head) else Head(*given)
        if head.kind not in KINDS:
            raise one_of("head", head.kind, KINDS)
        n_layers = len(model.encoder.layers if head.kind == "encoder" else model.decoder.layers)
        for what, number, count in (("layer", head.layer, n_layers), ("head", head.head, model.config.n_heads)):
            if not 0 <= number < count:
                raise UserError(f"{head.kind}: there is no {what} number {number + 1}; this model has {count} {what}s")
        found[head] = None
    return tuple(found)


def without_heads(model: Seq2Seq, heads: Sequence[Head]) -> Seq2Seq:
    """A twin around the same parameters, in which these heads say nothing: their output is zero before W_O."""
    twin = structural_copy(model)
    for attention, silent in _by_attention(twin, heads):
        attend = attention.attend
        if isinstance(attend, nn.Module):
            del attention.attend
        attention.attend = Silenced(attend, silent)
    return twin


def _by_attention(model: Seq2Seq, heads: Sequence[Head]) -> list[tuple[MultiHeadAttention, list[int]]]:
    places = dict.fromkeys((head.kind, head.layer) for head in heads)
    found = []
    for kind, layer in places:
        stack = model.encoder if kind == "encoder" else model.decoder
        attention = getattr(stack.layers[layer], "cross_attention" if kind == "cross" else "attention")
        assert isinstance(attention, MultiHeadAttention)
        found.append((attention, [head.head for head in heads if (head.kind, head.layer) == (kind, layer)]))
    return found


class Silenced:
    """An attend some of whose heads say nothing, though they look as before."""

    def __init__(self, attend: Attend, silent: list[int]) -> None:
        self.attend = attend
        self.silent = silent

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        heads = self.attend(q, k, v, mask, scale=scale, bias=bias, dropout=dropout).clone()  # (B, H, T, K)
        heads[:, self.silent] = 0.0
        return heads
