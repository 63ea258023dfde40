"""Record the attention weights of any model, from outside.

`record_attention` replaces the attention function in a structural copy, which shares the parameters. The model itself
is not changed, and the copy's outputs are equal to the model's, bit for bit.
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
    """Return a copy of the model with the same outputs, and the records that each call of the copy fills.

    The copy shares the model's parameters: do not train, convert or move it. In training mode, attention dropout
    affects the outputs but not the recorded weights.

    >>> import torch
    >>> from heedful.models import Gpt, GptConfig
    >>> model = Gpt(GptConfig(vocab_size=50, d_model=16, n_layers=2, n_heads=2, d_ff=32))
    >>> copy, records = record_attention(model)
    >>> _ = copy(torch.tensor([[3, 1, 4]]))
    >>> list(records), records["layers.0.attention"][0].shape
    (['layers.0.attention', 'layers.1.attention'], torch.Size([1, 2, 3, 3]))
    """
    copied, records = structural_copy(model), Records()
    for path, module in copied.named_modules():
        if isinstance(module, MultiHeadAttention):
            records[path] = []
            attend = module.attend
            if isinstance(attend, nn.Module):
                del module.attend  # PyTorch replaces a child module only with a module
            module.attend = _Recording(attend, records[path].append)
    return copied, records


class _Recording:
    """An `attend` that passes its weights to `record` and returns the result of the `attend` inside."""

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
    """Return the weights (B, H, T, S) that any `attend` uses, whatever its kernel or pattern.

    The result of attention is weights @ v, so with the identity matrix for v it is the weights themselves. The identity
    is passed K columns at a time, the width of v that an `attend` expects.
    """
    n_keys, width = v.size(2), v.size(3)
    identity = torch.eye(n_keys, -(-n_keys // width) * width, dtype=v.dtype, device=v.device)  # (S, S rounded up to K)
    parts = [
        attend(q, k, columns.expand(v.size(0), v.size(1), -1, -1), mask, scale=scale, bias=bias)
        for columns in torch.split(identity, width, dim=1)
    ]
    return torch.cat(parts, dim=-1)[..., :n_keys]


def structural_copy(module: M, copies: dict[int, nn.Module] | None = None) -> M:
    """Copy the modules but share their parameters and buffers; a module that is used twice is copied once."""
    copies = {} if copies is None else copies
    if id(module) not in copies:
        copied = copies[id(module)] = copy.copy(module)
        for name, value in vars(module).items():
            if isinstance(
                value, (dict, set)
            ):  # parameters, buffers, children, hooks: new tables with the same contents
                vars(copied)[name] = copy.copy(value)
        for name, child in module._modules.items():
            copied._modules[name] = None if child is None else structural_copy(child, copies)
    return copies[id(module)]  # type: ignore[return-value]
