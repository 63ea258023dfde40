"""The attention of every layer and head of one traced pass, and three numbers for each head to sort by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.packing import Kind, Packed, pack
from heedful.insight.trace import Trace
from heedful.models.seq2seq import Seq2Seq
from heedful.text import SPECIAL

EXACT_SCORES = 1 << 20  # bytes of scores, all kinds together, above which they are written as halves
PATHS = {
    "encoder": "encoder.layers.{}.attention",
    "decoder": "decoder.layers.{}.attention",
    "cross": "decoder.layers.{}.cross_attention",
}
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


def attention_maps(t: Trace[Seq2Seq], source: Sequence[int], target: Sequence[int]) -> dict[str, AttentionMaps]:
    """By kind; `source` and `target` are the ids, end marks included."""
    model = t.model
    depths = {"encoder": len(model.encoder.layers), "decoder": len(model.decoder.layers)}
    size = (
        4
        * model.config.n_heads
        * (depths["encoder"] * len(source) ** 2 + depths["decoder"] * len(target) * (len(target) + len(source)))
    )
    kind: Kind = "f32" if size <= EXACT_SCORES else "f16"
    maps = {}
    for name, path in PATHS.items():
        paths = [path.format(layer) for layer in range(depths["encoder" if name == "encoder" else "decoder"])]
        weights = torch.stack([t[f"{one}.weights"][0] for one in paths]).double()  # (L, H, T, S)
        maps[name] = AttentionMaps(
            weights=pack(weights, "u16"),
            scores=pack(torch.stack([t[f"{one}.scores"][0] for one in paths]), kind),
            mask=pack(_allowed(t, paths, weights), "u8"),
            entropy=_per_head(_entropy(weights)),
            locality=_per_head(_locality(weights)),
            alignment=_per_head(_alignment(weights, source, target)) if name == "cross" else None,
        )
    return maps


def word_alignment(weights: Tensor, source: Sequence[int], target: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(source token, target token): where each token looked most; (L, H, T, S) -> last layer, mean of its heads."""
    seen = weights[-1].mean(dim=0)  # (T, S)
    words = [s for s, id in enumerate(source) if id != SPECIAL.end]
    if not words:
        return ()
    return tuple(
        (max(words, key=lambda s, row=row: row[s]), t)  # type: ignore[misc]
        for t, row in enumerate(seen.tolist())
        if target[t] != SPECIAL.end
    )


def _allowed(t: Trace[Seq2Seq], paths: Sequence[str], weights: Tensor) -> Tensor:
    """Which keys a query may attend to. Patterns hide keys by themselves: there a key without any weight is hidden."""
    if t.model.config.pattern.kind in ("full", "additive") or "cross" in paths[0]:
        mask = t[f"{paths[0]}.mask"] if f"{paths[0]}.mask" in t.calls else torch.ones(1, 1, 1, 1, dtype=torch.bool)
        return mask.cpu().expand(1, 1, *weights.shape[2:])
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


def _alignment(weights: Tensor, source: Sequence[int], target: Sequence[int]) -> Tensor:
    rows = [t for t, id in enumerate(target) if id != SPECIAL.end]
    words = [s for s, id in enumerate(source) if id != SPECIAL.end]
    if not rows or not words:
        return torch.zeros(weights.shape[:2])
    return weights[:, :, rows][..., words].amax(dim=-1).mean(dim=-1)


def _per_head(values: Tensor) -> PerHead:
    return tuple(tuple(row) for row in values.tolist())
