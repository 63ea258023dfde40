"""A model with some of its heads taken out: what did they do?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from heedful.errors import UserError, one_of
from heedful.insight.anatomy import KINDS, Writer, attention_at, n_layers
from heedful.insight.silence import Silenced
from heedful.insight.trace import M
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.record import structural_copy


@dataclass(frozen=True)
class Head:
    """One attention head; layers and heads are counted from 0."""

    kind: str
    layer: int
    head: int


def as_heads(model: Writer, heads: Iterable[tuple[str, int, int] | Head]) -> tuple[Head, ...]:
    """The heads that are meant, each once, or a UserError that says which there are."""
    found: dict[Head, None] = {}
    for given in heads:
        head = given if isinstance(given, Head) else Head(*given)
        if head.kind not in KINDS:
            raise one_of("head", head.kind, KINDS)
        depth = n_layers(model, head.kind)
        for what, number, count in (("layer", head.layer, depth), ("head", head.head, model.config.n_heads)):
            if not 0 <= number < count:
                raise UserError(f"{head.kind}: there is no {what} number {number + 1}; this model has {count} {what}s")
        found[head] = None
    return tuple(found)


def without_heads(model: M, heads: Sequence[Head]) -> M:
    """A twin around the same parameters, in which these heads say nothing: their output is zero before W_O.

    The one layer of a Universal Transformer is every step: a head of it is silent in all of them.
    """
    twin = structural_copy(model)
    for attention, silent in _by_attention(twin, heads):
        attend = attention.attend
        if isinstance(attend, nn.Module):
            del attention.attend
        attention.attend = Silenced(attend, silent)
    return twin


def _by_attention(model: nn.Module, heads: Sequence[Head]) -> list[tuple[MultiHeadAttention, list[int]]]:
    places = dict.fromkeys((head.kind, head.layer) for head in heads)
    return [
        (attention_at(model, *place), [head.head for head in heads if (head.kind, head.layer) == place])
        for place in places
    ]
