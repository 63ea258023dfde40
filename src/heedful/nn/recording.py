"""Who looks at whom: the attention weights of a model, taken from outside.

`record_attention` swaps the attention function on a structural copy that shares the parameters. No `forward` knows of
it, the model itself is never touched, and the copy's outputs are the model's own, to the bit.
"""

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from .attention import Attend, MultiHeadAttention

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
