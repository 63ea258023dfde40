"""A model with some of its heads taken out: what did they do?

What each word of the source is good for: hide it, and see how much less likely every written token becomes.

Attention says where a head looked, not what mattered. This asks the model itself, once for each word, along the same
translation; what hiding several words together would do, it does not say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.errors import UserError, invalid_choice
from heedful.insight.model_layout import KINDS, Writer, anatomy, attention_at, n_layers
from heedful.insight.packed_arrays import Packed, pack
from heedful.insight.trace import AblatedAttend, M
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.recording import structural_copy


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
            raise invalid_choice("head", head.kind, KINDS)
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
        attention.attend = AblatedAttend(attend, silent)
    return twin


def _by_attention(model: nn.Module, heads: Sequence[Head]) -> list[tuple[MultiHeadAttention, list[int]]]:
    places = dict.fromkeys((head.kind, head.layer) for head in heads)
    return [
        (attention_at(model, *place), [head.head for head in heads if (head.kind, head.layer) == place])
        for place in places
    ]


LOGITS_AT_ONCE = 1 << 22  # 32 MB of them: a long sentence has many words, and each its own pass


@dataclass(frozen=True)
class WordOcclusion:
    """hidden (T, W): the log-probability of token t, less what is left of it without word w of the source."""

    hidden: Packed


def causes_of(
    model: Writer,
    source_ids: Tensor,
    seen: Tensor,
    words: Sequence[tuple[int, int]],
    target_in: Tensor,
    ids: Sequence[int],
) -> WordOcclusion | None:
    """By hiding one word after the other from the model; zero for those that it does not see in any case.

    source_ids and seen (1, S), target_in (1, T) are one sentence, `ids` what came of it. None where fewer than two
    words are to be seen: without the last one there is nothing to read.
    """
    visible = [number for number, word in enumerate(words) if bool(seen[0, slice(*word)].any())]
    if len(visible) < 2:
        return None
    masks = seen.repeat(1 + len(visible), 1)  # the first row hides nothing more
    for row, number in enumerate(visible, start=1):
        masks[row, slice(*words[number])] = False
    at_once = max(1, LOGITS_AT_ONCE // (len(ids) * (anatomy(model).vocab_size or 1)))
    parts = torch.split(masks, at_once)
    log_p = torch.cat([_log_probabilities(model, source_ids, some, target_in, ids) for some in parts])
    hidden = torch.zeros(len(ids), len(words), dtype=log_p.dtype)
    hidden[:, visible] = (log_p[0] - log_p[1:]).T.cpu()
    return WordOcclusion(pack(hidden, "f32"))


def _log_probabilities(
    model: Writer, source_ids: Tensor, masks: Tensor, target_in: Tensor, ids: Sequence[int]
) -> Tensor:
    """(rows, T): of each token that came, for each row of `masks`."""
    rows = len(masks)
    logits = model(source_ids.expand(rows, -1), target_in.expand(rows, -1), masks).double()  # (rows, T, V)
    came = torch.tensor(ids, device=logits.device).expand(rows, -1)[..., None]
    log_p: Tensor = logits.gather(-1, came)[..., 0] - logits.logsumexp(dim=-1)
    return log_p
