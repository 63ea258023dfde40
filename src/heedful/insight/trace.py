"""Record every tensor of a running model under its module path, without changing the model.

    with trace(model) as t:
        t.model(source, target)                       # or a whole decode, step by step
    t["encoder.layers.0.attention.weights"]           # (B, H, T, S) of the last call
    t.calls["decoder.layers.1.cross_attention.q"]     # of every call, in order

`t.model` is a structural copy around the same parameters. Hooks and the recording `attend` are on the copy only, so no
`forward` contains code for tracing, and other threads may use the model meanwhile. Outputs are equal bit for bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from heedful.nn.attention import AdditiveAttend, Attend, MultiHeadAttention, share_heads
from heedful.nn.dropout import Dropout
from heedful.nn.recording import structural_copy, weights_of

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Place:
    """A name in a trace and the number of a call: a shared module is called several times in one pass."""

    path: str
    call: int = -1

    def part(self, name: str) -> "Place":
        """Return the place of a submodule or tensor, in the same call."""
        return Place(f"{self.path}.{name}", self.call)


@dataclass
class Trace(Generic[M]):
    """The recorded tensors. `path` names the output of a module, `path.input` the input of a module without children.

    An attention module also has `q`, `k` and `v` (split into heads, rotated), `scores` (q k^T, before scale and mask),
    `scaled` (scores times the scale, plus the bias), `weights`, `heads` (weights times v, before W_O), and `mask` and
    `bias` if they exist.
    """

    model: M
    calls: dict[str, list[Tensor]] = field(default_factory=dict)
    recording: bool = True

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor of the last call."""
        if name not in self.calls:
            raise KeyError(f"nothing was recorded as {name!r}; `calls` lists the names")
        return self.calls[name][-1]

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name. A name that was called several times becomes `name@0`, `name@1`, …"""
        return {
            name if len(calls) == 1 else f"{name}@{index}": tensor
            for name, calls in self.calls.items()
            for index, tensor in enumerate(calls)
        }

    def at(self, place: Place) -> Tensor:
        """Return the tensor of one place for the first row of the batch."""
        return self.calls[place.path][place.call][0]

    def has(self, place: Place) -> bool:
        """Return whether a tensor was recorded under this name."""
        return place.path in self.calls

    def record(self, name: str, value: Tensor) -> None:
        """Add the tensor of one more call."""
        if self.recording:
            self.calls.setdefault(name, []).append(value.detach())


@contextmanager
def trace(model: M) -> Iterator[Trace[M]]:
    """Record the tensors of `t.model` inside the block; they stay readable after it."""
    t = Trace(_without_shared_modules(structural_copy(model)))
    for path, module in list(t.model.named_modules()):
        if isinstance(
            module, (nn.ModuleList, Dropout)
        ):  # a ModuleList is never called; Dropout changes nothing in eval mode
            continue
        _add_hook(t, path, module)
        if isinstance(module, MultiHeadAttention):
            attend = module.attend
            if isinstance(attend, nn.Module):
                del module.attend  # nn.Module lets only a module replace a child module
            module.attend = RecordingAttend(attend, t, path)
    try:
        yield t
    finally:
        t.recording = False


def _without_shared_modules(twin: M) -> M:
    """Copy each module that has a second path (a tied embedding, a shared layer), so that every module has one name."""
    visited = {id(twin): twin}

    def visit(module: nn.Module) -> None:
        for name, child in module._modules.items():
            if child is None:
                continue
            if id(child) in visited:
                child = module._modules[name] = structural_copy(child)
            visited[id(child)] = child  # type: ignore[assignment]
            visit(child)

    visit(twin)
    return twin


def _add_hook(t: Trace[M], path: str, module: nn.Module) -> None:
    is_leaf = not module._modules

    def after(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        if is_leaf and inputs and isinstance(inputs[0], Tensor):
            t.record(f"{path}.input", inputs[0])
        if isinstance(output, Tensor):
            t.record(path, output)
        elif isinstance(output, list):  # the hidden states of an encoder
            for index, states in enumerate(output):
                t.record(f"{path}.{index}", states)

    if path:  # the model's own output is that of its head
        module.register_forward_hook(after)


class RecordingAttend:
    """An `attend` that records the inputs and outputs of another `attend`."""

    def __init__(self, attend: Attend, t: Trace[M], path: str) -> None:
        self.attend = attend
        self.t = t
        self.path = path

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
        heads = self.attend(q, k, v, mask, scale=scale, bias=bias, dropout=dropout)
        if self.t.recording:
            attend = unwrap_attend(self.attend)
            with torch.no_grad():
                scores = scores_of(attend, q, k)
                scaled = scores * scale_of(attend, q.size(-1), scale)
                values = {
                    "q": q,
                    "k": k.clone(),  # k and v may be views of a cache, which later steps overwrite
                    "v": v.clone(),
                    "scores": scores,
                    "scaled": scaled if bias is None else scaled + bias,
                    "weights": weights_of(attend, q, k, v, mask, scale=scale, bias=bias),
                    "heads": heads,
                }
            values |= {name: tensor for name, tensor in (("mask", mask), ("bias", bias)) if tensor is not None}
            for name, value in values.items():
                self.t.record(f"{self.path}.{name}", value)
        return heads


def unwrap_attend(attend: Attend) -> Attend:
    """Return the `attend` inside recording and ablating wrappers."""
    while isinstance(attend, (RecordingAttend, AblatedAttend)):
        attend = attend.attend
    return attend


def scores_of(attend: Attend, q: Tensor, k: Tensor) -> Tensor:
    """Compute the scores before scale and mask, (B, H, T, S): q k^T, or v · tanh(q + k) for additive attention."""
    k = share_heads(k, q.size(1))
    if isinstance(attend, AdditiveAttend):
        pairs = torch.tanh(q[:, :, :, None, :] + k[:, :, None, :, :])  # (B, H, T, S, K)
        return torch.einsum("bhtsk,hk->bhts", pairs, attend.direction)
    return q @ k.transpose(-2, -1)


def scale_of(attend: Attend, d_head: int, scale: float | None) -> float:
    """Return the factor by which an `attend` multiplies its scores."""
    if scale is not None:
        return scale
    return 1.0 if isinstance(attend, AdditiveAttend) else float(d_head**-0.5)


class AblatedAttend:
    """An `attend` that sets the output of some heads to zero; their weights stay as they are."""

    def __init__(self, attend: Attend, heads: list[int]) -> None:
        self.attend = attend
        self.ablated = heads

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
        heads = self.attend(q, k, v, mask, scale=scale, bias=bias, dropout=dropout).clone()  # (B, H, T, K)
        heads[:, self.ablated] = 0.0
        return heads
