"""Every named tensor of a running model, by module path, taken from outside.

    with trace(model) as t:
        t.model(source, target)                       # or a whole decode, step by step
    t["encoder.layers.0.attention.weights"]           # (B, H, T, S) of the last call
    t.calls["decoder.layers.1.cross_attention.q"]     # of every call, in order

`t.model` is a structural copy around the same parameters: hooks and recording attention live on the copy, no `forward`
knows of it, and the model itself, which other threads may be using, is never touched. Outputs are equal to the bit.

A head that looks as before and says nothing.
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
    """A name in a trace, and which call of it: most modules are called once, a shared one again and again."""

    path: str
    call: int = -1

    def part(self, name: str) -> "Place":
        return Place(f"{self.path}.{name}", self.call)


@dataclass
class Trace(Generic[M]):
    """What was recorded. A name is the path of a module: its output; `path.input` of the smallest modules, their input.

    An attention has besides: `q`, `k`, `v` as its attend got them (split into heads, rotated), `scores` (q k^T, before
    scale and mask), `scaled` (times the scale, plus the bias), `weights`, `heads` (what comes out, before W_O), and
    `mask` and `bias` where there are any.
    """

    model: M
    calls: dict[str, list[Tensor]] = field(default_factory=dict)
    recording: bool = True

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of the last call."""
        if name not in self.calls:
            raise KeyError(f"nothing was recorded as {name!r}; the names are those of `calls`")
        return self.calls[name][-1]

    def tensors(self) -> dict[str, Tensor]:
        """All that was recorded: by its name, or, of a name that was called again, `name@0`, `name@1`, … in order."""
        return {
            name if len(calls) == 1 else f"{name}@{number}": one
            for name, calls in self.calls.items()
            for number, one in enumerate(calls)
        }

    def at(self, place: Place) -> Tensor:
        """What was recorded there, of the first row of the batch."""
        return self.calls[place.path][place.call][0]

    def has(self, place: Place) -> bool:
        return place.path in self.calls

    def record(self, name: str, value: Tensor) -> None:
        if self.recording:
            self.calls.setdefault(name, []).append(value.detach())


@contextmanager
def trace(model: M) -> Iterator[Trace[M]]:
    """Record all that happens in `t.model` inside the block; what was recorded stays readable after it."""
    t = Trace(_named_apart(structural_copy(model)))
    for path, module in list(t.model.named_modules()):
        if isinstance(module, (nn.ModuleList, Dropout)):  # never called; as it was, when at rest
            continue
        _watch(t, path, module)
        if isinstance(module, MultiHeadAttention):
            attend = module.attend
            if isinstance(attend, nn.Module):
                del module.attend  # a child module gives its name only to another module
            module.attend = RecordingAttend(attend, t, path)
    try:
        yield t
    finally:
        t.recording = False


def _named_apart(twin: M) -> M:
    """A module that stands in two places (a tied embedding, a shared layer) becomes two, so that each has its name."""
    met = {id(twin): twin}

    def visit(module: nn.Module) -> None:
        for name, child in module._modules.items():
            if child is None:
                continue
            if id(child) in met:
                child = module._modules[name] = structural_copy(child)
            met[id(child)] = child  # type: ignore[assignment]
            visit(child)

    visit(twin)
    return twin


def _watch(t: Trace[M], path: str, module: nn.Module) -> None:
    is_leaf = not module._modules

    def after(module: nn.Module, given: tuple[object, ...], output: object) -> None:
        if is_leaf and given and isinstance(given[0], Tensor):
            t.record(f"{path}.input", given[0])
        if isinstance(output, Tensor):
            t.record(path, output)
        elif isinstance(output, list):  # the memories that an encoder leaves
            for number, one in enumerate(output):
                t.record(f"{path}.{number}", one)

    if path:  # the model's own output is that of its head
        module.register_forward_hook(after)


class RecordingAttend:
    """An attend that records what goes in and out, and answers as the one inside."""

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
            looks = unwrap_attend(self.attend)
            with torch.no_grad():
                scores = scores_of(looks, q, k)
                scaled = scores * scale_of(looks, q.size(-1), scale)
                values = {
                    "q": q,
                    "k": k.clone(),  # a view of a cache that goes on being written
                    "v": v.clone(),
                    "scores": scores,
                    "scaled": scaled if bias is None else scaled + bias,
                    "weights": weights_of(looks, q, k, v, mask, scale=scale, bias=bias),
                    "heads": heads,
                }
            values |= {name: one for name, one in (("mask", mask), ("bias", bias)) if one is not None}
            for name, value in values.items():
                self.t.record(f"{self.path}.{name}", value)
        return heads


def unwrap_attend(attend: Attend) -> Attend:
    """The attend inside of those that only watch it or silence it."""
    while isinstance(attend, (RecordingAttend, AblatedAttend)):
        attend = attend.attend
    return attend


def scores_of(attend: Attend, q: Tensor, k: Tensor) -> Tensor:
    """How well each key fits each query, before scale and mask: q k^T, or v . tanh(q + k). (B, H, T, S)."""
    k = share_heads(k, q.size(1))
    if isinstance(attend, AdditiveAttend):
        pairs = torch.tanh(q[:, :, :, None, :] + k[:, :, None, :, :])  # (B, H, T, S, K)
        return torch.einsum("bhtsk,hk->bhts", pairs, attend.direction)
    return q @ k.transpose(-2, -1)


def scale_of(attend: Attend, d_head: int, scale: float | None) -> float:
    """What an attend multiplies its scores by."""
    if scale is not None:
        return scale
    return 1.0 if isinstance(attend, AdditiveAttend) else float(d_head**-0.5)


class AblatedAttend:
    """An attend some of whose heads say nothing, though they look as before."""

    def __init__(self, attend: Attend, silent: list[int]) -> None:
        self.attend = attend
        self.silent = silent

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
        heads[:, self.silent] = 0.0
        return heads
