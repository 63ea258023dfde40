"""Ablations: a model without some of its attention heads, and the effect of masking each source word.

Attention weights show where a head looked, not what mattered for the output. `causes_of` measures the latter: it masks
one source word at a time and measures how the probability of every target token changes, along the same translation.
It does not measure the effect of masking several words together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.errors import UserError, invalid_choice
from heedful.insight.model_layout import KINDS, Writer, attention_at, model_layout, n_layers
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
    """Check heads and remove duplicates. Raise a UserError for a head that the model does not have."""
    unique: dict[Head, None] = {}
    for item in heads:
        head = item if isinstance(item, Head) else Head(*item)
        if head.kind not in KINDS:
            raise invalid_choice("head", head.kind, KINDS)
        depth = n_layers(model, head.kind)
        for what, number, count in (("layer", head.layer, depth), ("head", head.head, model.config.n_heads)):
            if not 0 <= number < count:
                raise UserError(f"{head.kind}: there is no {what} number {number + 1}; this model has {count} {what}s")
        unique[head] = None
    return tuple(unique)


def without_heads(model: M, heads: Sequence[Head]) -> M:
    """Return a copy of the model, around the same parameters, in which the output of these heads is zero before W_O.

    A Universal Transformer applies one layer in every step, so a head of it is ablated in all steps.
    """
    twin = structural_copy(model)
    for attention, ablated in _by_attention(twin, heads):
        attend = attention.attend
        if isinstance(attend, nn.Module):
            del attention.attend
        attention.attend = AblatedAttend(attend, ablated)
    return twin


def _by_attention(model: nn.Module, heads: Sequence[Head]) -> list[tuple[MultiHeadAttention, list[int]]]:
    layers = dict.fromkeys((head.kind, head.layer) for head in heads)
    return [
        (attention_at(model, *layer), [head.head for head in heads if (head.kind, head.layer) == layer])
        for layer in layers
    ]


LOGITS_AT_ONCE = 1 << 22  # 32 MB of float64; each masked word needs one row of T x V logits


@dataclass(frozen=True)
class WordOcclusion:
    """The effect of masking each source word on each target token."""

    hidden: Packed  # (T, W): log-probability of token t, minus its log-probability when word w is masked


def causes_of(
    model: Writer,
    source_ids: Tensor,
    mask: Tensor,
    words: Sequence[tuple[int, int]],
    target_in: Tensor,
    ids: Sequence[int],
) -> WordOcclusion | None:
    """Mask one source word after the other and measure the target tokens; zero for words that are masked already.

    `source_ids` and `mask` (1, S) and `target_in` (1, T) are one sentence, `ids` (T) its target tokens. Return None
    if fewer than two words are visible: a model cannot read an empty source.
    """
    visible = [index for index, word in enumerate(words) if bool(mask[0, slice(*word)].any())]
    if len(visible) < 2:
        return None
    masks = mask.repeat(1 + len(visible), 1)  # row 0 masks no further word
    for row, index in enumerate(visible, start=1):
        masks[row, slice(*words[index])] = False
    n_rows = max(1, LOGITS_AT_ONCE // (len(ids) * (model_layout(model).vocab_size or 1)))
    parts = torch.split(masks, n_rows)
    log_p = torch.cat([_log_probabilities(model, source_ids, part, target_in, ids) for part in parts])
    hidden = torch.zeros(len(ids), len(words), dtype=log_p.dtype)
    hidden[:, visible] = (log_p[0] - log_p[1:]).T.cpu()
    return WordOcclusion(pack(hidden, "f32"))


def _log_probabilities(
    model: Writer, source_ids: Tensor, masks: Tensor, target_in: Tensor, ids: Sequence[int]
) -> Tensor:
    """Return the log-probability of each target token for each row of `masks`, (rows, T)."""
    rows = len(masks)
    logits = model(source_ids.expand(rows, -1), target_in.expand(rows, -1), masks).double()  # (rows, T, V)
    targets = torch.tensor(ids, device=logits.device).expand(rows, -1)[..., None]
    log_p: Tensor = logits.gather(-1, targets)[..., 0] - logits.logsumexp(dim=-1)
    return log_p
