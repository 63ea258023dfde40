"""One row for each tensor of a checkpoint: its name there and here, and the change of layout between them.

A row describes how heedful's tensors become Hugging Face's. Reading undoes the same steps in reverse order, so that no
conversion is written twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.models.weights import refuse_names


@dataclass(frozen=True)
class TensorMap:
    """How one tensor of a checkpoint is made of heedful's.

    Writing goes: join, order, transpose, skip_rows, unsqueeze, conv1x1. Reading goes back.

    >>> row = TensorMap("attn.weight", ("to_q.weight", "to_k.weight"), transposed=True)
    >>> ours = {"to_q.weight": torch.zeros(4, 3), "to_k.weight": torch.ones(4, 3)}
    >>> theirs = write_tensors([row], ours)
    >>> theirs["attn.weight"].shape, read_tensors([row], theirs)["to_k.weight"].shape
    (torch.Size([3, 8]), torch.Size([4, 3]))
    """

    hf_name: str
    name: str | tuple[str, ...]  # heedful's; several tensors of equal size are concatenated along `axis`
    axis: int = 0  # of heedful's tensor, also for `order`
    transposed: bool = False  # the checkpoint keeps the matrix as (inputs, outputs)
    aliases: tuple[str, ...] = ()  # other names in the checkpoint; tensors under several of them must be equal
    order: tuple[int, ...] = ()  # index i along `axis` of the checkpoint is index order[i] here
    skip_rows: int = 0  # the checkpoint has this many unused rows first; written as zeros
    unsqueeze: bool = False  # the checkpoint has one more axis of length one, the first
    default_zeros: tuple[int, ...] = ()  # the shape here of a tensor that may be missing and then is zero
    conv1x1: bool = False  # the checkpoint has a convolution of width one: two more axes of length one, the last
    also_write_as: tuple[str, ...] = ()  # more names to write the tensor under; they are not read

    @property
    def hf_names(self) -> tuple[str, ...]:
        """All names in the checkpoint; the first is the one that is written."""
        return (self.hf_name, *self.aliases)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of heedful's tensors."""
        return (self.name,) if isinstance(self.name, str) else self.name


def write_tensors(rows: Iterable[TensorMap], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return heedful's tensors as a checkpoint has them. Each tensor must have a row."""
    rows = list(rows)
    theirs = {row.hf_name: _write(row, [ours[name].detach() for name in row.names]) for row in rows}
    theirs |= {name: theirs[row.hf_name].clone() for row in rows for name in row.also_write_as}
    left = set(ours) - {name for row in rows for name in row.names}
    assert not left, f"no row for {sorted(left)}"
    return theirs


def read_tensors(rows: Iterable[TensorMap], theirs: Mapping[str, Tensor], *, where: str = "") -> dict[str, Tensor]:
    """Return a checkpoint's tensors as heedful has them.

    A missing tensor, one without a row, or one whose shape does not fit is a UserError with its name.
    """
    rows = list(rows)
    _check_names(rows, theirs, where)
    ours: dict[str, Tensor] = {}
    for row in rows:
        present = [name for name in row.hf_names if name in theirs]
        if not present:
            ours |= {name: torch.zeros(row.default_zeros) for name in row.names}
            continue
        first = theirs[present[0]]
        for alias in present[1:]:
            if not torch.equal(first, theirs[alias]):
                raise UserError(f"{where}: '{present[0]}' and '{alias}' must be equal, but they differ")
        try:
            ours |= zip(row.names, _read(row, first), strict=True)
        except (RuntimeError, IndexError, ValueError):
            shape = tuple(first.shape)
            raise UserError(f"{where}: '{present[0]}' has the shape {shape}, which does not fit the settings") from None
    return ours


def _write(row: TensorMap, parts: Sequence[Tensor]) -> Tensor:
    tensor = parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=row.axis)
    if row.order:
        tensor = tensor.index_select(row.axis, torch.tensor(row.order, device=tensor.device))
    if row.transposed:
        tensor = tensor.t()
    if row.skip_rows:
        tensor = torch.cat([tensor.new_zeros(row.skip_rows, *tensor.shape[1:]), tensor])
    if row.unsqueeze:
        tensor = tensor[None]
    if row.conv1x1:
        tensor = tensor[..., None, None]
    return tensor.contiguous()


def _read(row: TensorMap, tensor: Tensor) -> list[Tensor]:
    if row.conv1x1:
        tensor = tensor.squeeze(-1).squeeze(-1)
    if row.unsqueeze:
        tensor = tensor.squeeze(0)
    if row.skip_rows:
        tensor = tensor[row.skip_rows :]
    if row.transposed:
        tensor = tensor.t()
    if row.order:
        tensor = tensor.index_select(row.axis, torch.tensor(row.order, device=tensor.device).argsort())
    if len(row.names) == 1:
        return [tensor.contiguous()]
    size, rest = divmod(tensor.size(row.axis), len(row.names))
    if rest:
        raise ValueError("the tensor cannot be split into equal parts")
    return [part.contiguous() for part in torch.split(tensor, size, dim=row.axis)]


def _check_names(rows: Sequence[TensorMap], theirs: Mapping[str, Tensor], where: str) -> None:
    missing = [row.hf_name for row in rows if not row.default_zeros and not any(n in theirs for n in row.hf_names)]
    unknown = sorted(set(theirs) - {name for row in rows for name in row.hf_names})
    refuse_names(f"{where}: does not fit its settings", missing, unknown)
