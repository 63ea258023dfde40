"""What a model looks at while it translates one sentence."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import collate
from heedful.decoding.search.loop import search
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.reference import Seq2SeqStep
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.record import record_attention, structural_copy
from heedful.text import Tokenizers


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
    batch = collate([np.array(source_ids, np.int64)], [np.array(target_ids, np.int64)], np.zeros(1, np.int64))
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
