"""The attention of every layer and head of one traced pass, and three numbers for each head to sort by.

What a model looks at while it translates one sentence.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.data.collate import collate_pairs
from heedful.decoding.search.continuous_batching import search
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.reference import Seq2SeqStep
from heedful.insight.model_layout import CROSS, SELF, anatomy
from heedful.insight.packed_arrays import Kind, Packed, pack
from heedful.insight.trace import M, Place, Trace
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.recording import record_attention, structural_copy
from heedful.text import Tokenizers

EXACT_SCORES = 1 << 20  # bytes of scores, all kinds together, above which they are written as halves
PerHead = tuple[tuple[float, ...], ...]  # [layer][head]


@dataclass(frozen=True)
class AttentionMaps:
    """One kind of attention: (L, H, queries, keys)."""

    weights: Packed
    scores: Packed
    mask: Packed  # broadcastable to the weights
    entropy: PerHead
    locality: PerHead
    alignment: PerHead | None


def attention_maps(
    t: Trace[M], source: Sequence[int] = (), target: Sequence[int] = (), special_ids: Container[int] = ()
) -> dict[str, AttentionMaps]:
    """By kind, those that the model has.

    `source` and `target` are the ids with special tokens, which `special_ids` names: they are no words.
    """
    body = anatomy(t.model)
    encoder = [] if body.encoder is None else body.encoder.places(t)
    decoder = [] if body.decoder is None else body.decoder.places(t)
    places = {
        "encoder": [place.part(SELF) for place in encoder],
        "decoder": [place.part(SELF) for place in decoder],
        "cross": [place.part(CROSS) for place in decoder if body.encoder is not None],
    }
    weights = {  # each (L, H, T, S)
        kind: torch.stack([t.at(one.part("weights")) for one in found]).double()
        for kind, found in places.items()
        if found
    }
    exact: Kind = "f32" if 4 * sum(one.numel() for one in weights.values()) <= EXACT_SCORES else "f16"
    return {
        kind: AttentionMaps(
            weights=pack(one, "u16"),
            scores=pack(torch.stack([t.at(place.part("scores")) for place in places[kind]]), exact),
            mask=pack(_allowed(t, places[kind][0], one, "by mask" if kind == "cross" else body.hides), "u8"),
            entropy=_per_head(_entropy(one)),
            locality=_per_head(_locality(one)),
            alignment=_per_head(_alignment(one, source, target, special_ids)) if kind == "cross" else None,
        )
        for kind, one in weights.items()
    }


def word_alignment(
    weights: Tensor, source: Sequence[int], target: Sequence[int], special_ids: Container[int]
) -> tuple[tuple[int, int], ...]:
    """(source token, target token): where each token looked most; (L, H, T, S) -> last layer, mean of its heads."""
    seen = weights[-1].mean(dim=0)  # (T, S)
    words = [s for s, id in enumerate(source) if id not in special_ids]
    if not words:
        return ()
    return tuple(
        (max(words, key=lambda s, row=row: row[s]), t)  # type: ignore[misc]
        for t, row in enumerate(seen.tolist())
        if target[t] not in special_ids
    )


def _allowed(t: Trace[M], place: Place, weights: Tensor, hides: str) -> Tensor:
    """Which keys a query may attend to. Patterns hide keys by themselves: there a key without any weight is hidden."""
    if hides == "the future":
        return torch.ones(1, 1, *weights.shape[2:], dtype=torch.bool).tril()
    if hides == "by mask":
        masks = t.calls.get(f"{place.path}.mask", [torch.ones(1, 1, 1, 1, dtype=torch.bool)])
        return masks[-1].cpu().expand(1, 1, *weights.shape[2:])  # the same for every layer
    allowed = weights > 0
    first = allowed[:1, :1]
    return first if bool((allowed == first).all()) else allowed


def _entropy(weights: Tensor) -> Tensor:
    entropies: Tensor = -torch.special.xlogy(weights, weights).sum(dim=-1) / math.log(2)
    return entropies.mean(dim=-1).clamp(min=0.0)


def _locality(weights: Tensor) -> Tensor:
    """The mean weight on keys at most one place away from the query's own, or from the same fraction of the way."""
    n_queries, n_keys = weights.shape[-2:]
    places = torch.arange(n_queries, device=weights.device)
    own = (places * (n_keys - 1) / max(n_queries - 1, 1)).round() if n_queries != n_keys else places
    near = (own[:, None] - torch.arange(n_keys, device=weights.device)).abs() <= 1
    return (weights * near).sum(dim=-1).mean(dim=-1)


def _alignment(weights: Tensor, source: Sequence[int], target: Sequence[int], special_ids: Container[int]) -> Tensor:
    rows = [t for t, id in enumerate(target) if id not in special_ids]
    words = [s for s, id in enumerate(source) if id not in special_ids]
    if not rows or not words:
        return torch.zeros(weights.shape[:2])
    return weights[:, :, rows][..., words].amax(dim=-1).mean(dim=-1)


def _per_head(values: Tensor) -> PerHead:
    return tuple(tuple(row) for row in values.tolist())


@dataclass(frozen=True)
class CrossAttention:
    """What the decoder looked at while it wrote one sentence.

    Row t of the weights belongs to the query that produced target[t]: it had read the start mark and target[:t].
    """

    source: tuple[str, ...]  # pieces, and the end mark
    target: tuple[str, ...]
    weights: Tensor  # (layers, H, T, S), float32; each row sums to one


def cross_attention(model: Seq2Seq, tokenizers: Tokenizers, source: str, target: str | None = None) -> CrossAttention:
    """The cross-attention of every layer and head for a real sentence and a given translation, or the model's own."""
    resting = structural_copy(model).eval()  # the model itself stays in the mode it is in
    source_ids = tokenizers.source.encode(source)
    target_ids = _written(resting, source_ids) if target is None else tokenizers.target.encode(target)
    twin, records = record_attention(resting)
    batch = collate_pairs(
        [np.array(source_ids, np.int64)],
        [np.array(target_ids, np.int64)],
        np.zeros(1, np.int64),
        special_ids=model.config.special_ids,
    )
    batch = batch.to(next(model.parameters()).device)
    with torch.inference_mode():
        twin(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    layers = [records[f"decoder.layers.{i}.cross_attention"][-1][0] for i in range(len(twin.decoder.layers))]
    return CrossAttention(
        source=tuple(tokenizers.source.pieces(batch.source[0].tolist())),
        target=tuple(tokenizers.target.pieces(batch.target_out[0].tolist())),
        weights=torch.stack(layers).float().cpu(),
    )


def _written(model: Seq2Seq, source_ids: list[int]) -> list[int]:
    """The ids of the greedy translation: encoding its text again could cut it into other pieces."""
    return search(Seq2SeqStep(model), [Request(source_ids)], SearchSettings(beam=1))[0][0].ids
