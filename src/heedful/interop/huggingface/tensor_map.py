"""One table for both directions: what each tensor is called there and here, and what lies between.

A row says what *theirs* is made of; reading undoes what writing does, so no conversion is written twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.models.weights import refuse_names


@dataclass(frozen=True)
class TensorMap:
    """One tensor of theirs. Writing goes: join, order, transpose, skip, wrap, pointwise. Reading goes back."""

    theirs: str
    ours: str | tuple[str, ...]  # several, all of one size: theirs is ours, one after the other along `axis`
    axis: int = 0  # in ours, as is that of `order`
    transposed: bool = False  # a matrix that theirs keeps as (inputs, outputs)
    aliases: tuple[str, ...] = ()  # other names that files have for it; all that are found must hold the same numbers
    order: tuple[int, ...] = ()  # place i along `axis` of theirs is place order[i] of ours
    skip: int = 0  # theirs has so many rows before ours that nobody reads; written as zeros
    wrapped: bool = False  # theirs has one more axis, of length one, before ours
    or_zeros: tuple[int, ...] = ()  # the shape of ours where some files have none: it then is zero
    pointwise: bool = False  # theirs is a convolution of width one: two more axes of length one, after ours
    again: tuple[str, ...] = ()  # written under these names as well, and not read there

    @property
    def names(self) -> tuple[str, ...]:
        """What it is called there; the first is the one that is written."""
        return (self.theirs, *self.aliases)

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.ours,) if isinstance(self.ours, str) else self.ours


def write_table(rows: Iterable[TensorMap], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors, each by its first name, as theirs; each must have its row."""
    rows = list(rows)
    written = {row.theirs: _write(row, [ours[name].detach() for name in row.parts]) for row in rows}
    written |= {name: written[row.theirs].clone() for row in rows for name in row.again}
    left = set(ours) - {name for row in rows for name in row.parts}
    assert not left, f"the table has no row for {sorted(left)}"
    return written


def read_table(rows: Iterable[TensorMap], theirs: Mapping[str, Tensor], *, where: str = "") -> dict[str, Tensor]:
    """Their tensors as ours, or a UserError that names what is missing, too many, or does not fit the table."""
    rows = list(rows)
    _check_names(rows, theirs, where)
    read: dict[str, Tensor] = {}
    for row in rows:
        found = [name for name in row.names if name in theirs]
        if not found:
            read |= {name: torch.zeros(row.or_zeros) for name in row.parts}
            continue
        for other in found[1:]:
            if not torch.equal(theirs[found[0]], theirs[other]):
                raise UserError(f"{where}: '{found[0]}' and '{other}' should be one matrix, and differ")
        try:
            read |= zip(row.parts, _read(row, theirs[found[0]]), strict=True)
        except (RuntimeError, IndexError, ValueError):
            shape = tuple(theirs[found[0]].shape)
            raise UserError(f"{where}: '{found[0]}' has the shape {shape}, which does not fit the settings") from None
    return read


def _write(row: TensorMap, parts: Sequence[Tensor]) -> Tensor:
    tensor = parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=row.axis)
    if row.order:
        tensor = tensor.index_select(row.axis, torch.tensor(row.order, device=tensor.device))
    if row.transposed:
        tensor = tensor.t()
    if row.skip:
        tensor = torch.cat([tensor.new_zeros(row.skip, *tensor.shape[1:]), tensor])
    if row.wrapped:
        tensor = tensor[None]
    if row.pointwise:
        tensor = tensor[..., None, None]
    return tensor.contiguous()


def _read(row: TensorMap, tensor: Tensor) -> list[Tensor]:
    if row.pointwise:
        tensor = tensor.squeeze(-1).squeeze(-1)
    if row.wrapped:
        tensor = tensor.squeeze(0)
    if row.skip:
        tensor = tensor[row.skip :]
    if row.transposed:
        tensor = tensor.t()
    if row.order:
        tensor = tensor.index_select(row.axis, torch.tensor(row.order, device=tensor.device).argsort())
    if len(row.parts) == 1:
        return [tensor.contiguous()]
    size, rest = divmod(tensor.size(row.axis), len(row.parts))
    if rest:
        raise ValueError("parts of one size do not fit")
    return [part.contiguous() for part in torch.split(tensor, size, dim=row.axis)]


def _check_names(rows: Sequence[TensorMap], theirs: Mapping[str, Tensor], where: str) -> None:
    missing = [row.theirs for row in rows if not row.or_zeros and not any(name in theirs for name in row.names)]
    surplus = sorted(set(theirs) - {name for row in rows for name in row.names})
    refuse_names(f"{where}: does not fit its settings", missing, surplus)
