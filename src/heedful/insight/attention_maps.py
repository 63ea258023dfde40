"""Attention weights of every layer and head of a traced pass, with three summary numbers per head."""

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
from heedful.insight.model_layout import CROSS, SELF, model_layout
from heedful.insight.packed_arrays import Kind, Packed, pack
from heedful.insight.trace import M, Place, Trace
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.recording import record_attention, structural_copy
from heedful.text import Tokenizers

EXACT_SCORES = 1 << 20  # bytes of scores, all kinds together; more are stored as float16
PerHead = tuple[tuple[float, ...], ...]  # [layer][head]


@dataclass(frozen=True)
class AttentionMaps:
    """One kind of attention: arrays (L, H, queries, keys) and summary numbers of each head."""

    weights: Packed
    scores: Packed
    mask: Packed  # broadcastable to the weights
    entropy: PerHead  # bits, mean over the queries
    locality: PerHead  # mean weight on the query's own position and its neighbours
    alignment: PerHead | None  # cross-attention only: mean over target words of the largest weight on a source word


def attention_maps(
    t: Trace[M], source: Sequence[int] = (), target: Sequence[int] = (), special_ids: Container[int] = ()
) -> dict[str, AttentionMaps]:
    """Collect the attention of a traced pass by kind: "encoder", "decoder" and "cross", as far as the model has them.

    `source` and `target` are ids with special tokens; `special_ids` lists the ids that are not words.
    """
    layout = model_layout(t.model)
    encoder = [] if layout.encoder is None else layout.encoder.places(t)
    decoder = [] if layout.decoder is None else layout.decoder.places(t)
    places = {
        "encoder": [place.part(SELF) for place in encoder],
        "decoder": [place.part(SELF) for place in decoder],
        "cross": [place.part(CROSS) for place in decoder if layout.encoder is not None],
    }
    all_weights = {  # each (L, H, T, S)
        kind: torch.stack([t.at(place.part("weights")) for place in layers]).double()
        for kind, layers in places.items()
        if layers
    }
    exact: Kind = "f32" if 4 * sum(weights.numel() for weights in all_weights.values()) <= EXACT_SCORES else "f16"
    return {
        kind: AttentionMaps(
            weights=pack(weights, "u16"),
            scores=pack(torch.stack([t.at(place.part("scores")) for place in places[kind]]), exact),
            mask=pack(_allowed(t, places[kind][0], weights, "by mask" if kind == "cross" else layout.hides), "u8"),
            entropy=_per_head(_entropy(weights)),
            locality=_per_head(_locality(weights)),
            alignment=_per_head(_alignment(weights, source, target, special_ids)) if kind == "cross" else None,
        )
        for kind, weights in all_weights.items()
    }


def word_alignment(
    weights: Tensor, source: Sequence[int], target: Sequence[int], special_ids: Container[int]
) -> tuple[tuple[int, int], ...]:
    """Align each target word with the source word of the largest weight, in the last layer, averaged over heads.

    `weights` is (L, H, T, S); return pairs (source token, target token).
    """
    mean = weights[-1].mean(dim=0)  # (T, S)
    words = [s for s, id in enumerate(source) if id not in special_ids]
    if not words:
        return ()
    return tuple(
        (max(words, key=lambda s, row=row: row[s]), t)  # type: ignore[misc]
        for t, row in enumerate(mean.tolist())
        if target[t] not in special_ids
    )


def _allowed(t: Trace[M], place: Place, weights: Tensor, hides: str) -> Tensor:
    """Return which keys a query may attend to. A pattern masks keys inside `attend`: there, weight 0 means masked."""
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
    """Return the mean weight on keys at most one position from the query's own.

    In cross-attention the query's own position is the key at the same fraction of the sentence.
    """
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
class TokenAttention:
    """Attention weights with the tokens of their columns (`source`, the keys) and rows (`target`, the queries).

    In cross-attention, row t belongs to the query that produced target[t]: it had read the start token and target[:t].
    """

    source: tuple[str, ...]  # pieces and the end token
    target: tuple[str, ...]
    weights: Tensor  # (layers, H, T, S), float32; each row sums to one


def cross_attention(model: Seq2Seq, tokenizers: Tokenizers, source: str, target: str | None = None) -> TokenAttention:
    """Record the cross-attention of every layer and head along `target`, or the model's greedy translation."""
    copy = structural_copy(model).eval()  # the model itself keeps its mode
    source_ids = tokenizers.source.encode(source)
    target_ids = _greedy_translation(copy, source_ids) if target is None else tokenizers.target.encode(target)
    twin, records = record_attention(copy)
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
    return TokenAttention(
        source=tuple(tokenizers.source.pieces(batch.source[0].tolist())),
        target=tuple(tokenizers.target.pieces(batch.target_out[0].tolist())),
        weights=torch.stack(layers).float().cpu(),
    )


def _greedy_translation(model: Seq2Seq, source_ids: list[int]) -> list[int]:
    """Return the ids of the greedy translation; encoding its text again might give other pieces."""
    return search(Seq2SeqStep(model), [Request(source_ids)], SearchSettings(beam=1))[0][0].ids
