"""Several processes as one: the same command under torchrun trains the same model on the same batches.

One rank alone needs none of this: every function here then does nothing.
"""

import contextlib
import ctypes
import datetime
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from heedful.nn.layers import DecoderLayer, EncoderLayer


@dataclass(frozen=True)
class World:
    """Which of how many processes this is, and where its tensors live."""

    rank: int
    size: int
    device: torch.device

    @property
    def speaks(self) -> bool:
        """Rank 0 alone prints, logs and writes."""
        return self.rank == 0


@contextlib.contextmanager
def joined_world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, if it did, and leave them at the end."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local)
    if size == 1:
        yield World(0, 1, chosen)
        return
    die_with_parent()
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    # Meeting takes seconds; now and then, after a restart, gloo's ranks miss each other and would wait for ever. A rank
    # that gives up is started again by torchrun. Later waits are long: rank 0 prepares the data meanwhile.
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    _set_pg_timeout(datetime.timedelta(hours=12))
    try:
        yield World(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        dist.destroy_process_group()


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """The device of that name; "auto" is the best that is there."""
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def die_with_parent() -> None:
    """Let the system end this process when its parent dies, so that none is left behind (Linux)."""
    if sys.platform.startswith("linux"):
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def wrap(module: nn.Module, world: World, shard: Literal["none", "full"]) -> nn.Module:
    """DDP, or FSDP2 with every layer a unit of its own; the module itself when there is one rank."""
    if world.size == 1:
        return module
    if shard == "none":
        ids = [world.device.index] if world.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=ids, broadcast_buffers=False)
    mesh = init_device_mesh(world.device.type, (world.size,))
    for part in module.modules():
        if isinstance(part, (EncoderLayer, DecoderLayer)):
            fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


@contextlib.contextmanager
def gradients_synced(module: nn.Module, *, last: bool) -> Iterator[None]:
    """Exchange gradients only after the last part of a step; forward and backward both belong inside."""
    if isinstance(module, DistributedDataParallel):
        with contextlib.nullcontext() if last else module.no_sync():
            yield
    elif isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
        yield
    else:
        yield


def sum_over_ranks(world: World, *numbers: float) -> list[float]:
    """Each number's sum over all ranks, exact for whole numbers."""
    if world.size == 1:
        return list(numbers)
    kind = torch.float32 if world.device.type == "mps" else torch.float64
    total = torch.tensor(numbers, dtype=kind, device=world.device)
    dist.all_reduce(total)
    return total.tolist()


def agree(world: World, value: Any) -> Any:
    """Rank 0's value (of JSON's kinds) on all ranks, for decisions that all must take alike."""
    if world.size == 1:
        return value
    text = json.dumps(value).encode()  # torch's own way to send objects is pickle
    size = torch.tensor([len(text)], device=world.device)
    dist.broadcast(size, src=0)
    data = torch.tensor(list(text), dtype=torch.uint8, device=world.device).resize_(int(size))
    dist.broadcast(data, src=0)
    return json.loads(bytes(data.tolist()))


def any_rank(world: World, flag: bool) -> bool:
    return sum_over_ranks(world, float(flag))[0] > 0


def barrier(world: World) -> None:
    if world.size > 1:
        dist.barrier()


def whole(tensor: Tensor) -> Tensor:
    """A tensor that is divided over the ranks, put together; all ranks must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
