"""Who looks at whom: the attention weights of a model, taken from outside.

`record_attention` swaps the attention function on a structural copy that shares the parameters. No `forward` knows of
it, the model itself is never touched, and the copy's outputs are the model's own, to the bit.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batch import collate, pad_sources
from heedful.decoding.greedy import greedy_search
from heedful.decoding.step import Seq2SeqStep
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.attention import Attend, MultiHeadAttention
from heedful.text import SPECIAL, Tokenizers

M = TypeVar("M", bound=nn.Module)
Records = dict[str, list[Tensor]]  # path of a multi-head attention -> its weights at each call, (B, H, T, S)


def record_attention(model: M) -> tuple[M, Records]:
    """A twin of the model that gives the same outputs, and the records that it fills with every call.

    The twin's parameters are the model's: do not train, convert or move it. Attention dropout, if the model is in
    training, acts on the outputs but not on the recorded weights.
    """
    twin, records = structural_copy(model), Records()
    for path, module in twin.named_modules():
        if isinstance(module, MultiHeadAttention):
            records[path] = []
            attend = module.attend
            if isinstance(attend, nn.Module):
                del module.attend  # a child module gives its name only to another module
            module.attend = _Recording(attend, records[path].append)
    return twin, records


class _Recording:
    """An attend that says what its weights were and answers as the one inside."""

    def __init__(self, attend: Attend, record: Callable[[Tensor], None]) -> None:
        self.attend = attend
        self.record = record

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
        with torch.no_grad():
            self.record(weights_of(self.attend, q, k, v, mask, scale=scale, bias=bias))
        return self.attend(q, k, v, mask, scale=scale, bias=bias, dropout=dropout)


def weights_of(
    attend: Attend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The weights (B, H, T, S) that any attend uses, whatever its kernel or pattern.

    Attention is linear in its values: what comes out is weights @ v. So with the identity for v it is the weights
    themselves. The identity is passed K columns at a time, as wide as an attend expects its values to be.
    """
    n_keys, width = v.size(2), v.size(3)
    identity = torch.eye(n_keys, -(-n_keys // width) * width, dtype=v.dtype, device=v.device)  # (S, S rounded up to K)
    parts = [
        attend(q, k, columns.expand(v.size(0), v.size(1), -1, -1), mask, scale=scale, bias=bias)
        for columns in torch.split(identity, width, dim=1)
    ]
    return torch.cat(parts, dim=-1)[..., :n_keys]


def structural_copy(module: M, copies: dict[int, nn.Module] | None = None) -> M:
    """New module objects around the same parameters and buffers; a module that is used twice stays one."""
    copies = {} if copies is None else copies
    if id(module) not in copies:
        twin = copies[id(module)] = copy.copy(module)
        for name, value in vars(module).items():
            if isinstance(value, (dict, set)):  # parameters, buffers, children, hooks: own tables, shared contents
                vars(twin)[name] = copy.copy(value)
        for name, child in module._modules.items():
            twin._modules[name] = None if child is None else structural_copy(child, copies)
    return copies[id(module)]  # type: ignore[return-value]


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
    source, mask = (x.to(next(model.parameters()).device) for x in pad_sources([source_ids]))
    step = Seq2SeqStep(model)
    with torch.inference_mode():
        state = step.begin(source, mask)
    max_len = mask.sum(dim=1) * 2 + 10
    return greedy_search(step, state, n_rows=1, start=SPECIAL.start, end=SPECIAL.end, max_len=max_len)[0]
