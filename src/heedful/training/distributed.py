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
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from heedful.devices import torch_device
from heedful.errors import UserError
from heedful.nn.layers import DecoderLayer, EncoderLayer

MEETING = datetime.timedelta(minutes=10)
"""How long ranks wait for each other at the start: clusters start slowly."""


@dataclass(frozen=True)
class World:
    """Which of how many processes this is, and where its tensors live."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process prints, logs and writes: rank 0 alone does."""
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
    store, rank, size = next(rendezvous("env://", timeout=MEETING))
    # Waits are long, since rank 0 prepares the data while the others wait for it.
    dist.init_process_group(
        backend, store=fresh_store(store, rank, size), rank=rank, world_size=size, timeout=datetime.timedelta(hours=12)
    )
    try:
        yield World(rank, size, chosen)
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise UserError(f"another of the {size} processes is gone: rank {rank} cannot go on ({error})") from error
        raise
    finally:
        dist.destroy_process_group()


def fresh_store(store: Store, rank: int, size: int) -> Store:
    """A part of torchrun's store that no earlier attempt has written to.

    torchrun keeps one store over restarts. A rank that found there the address at which another one listened before
    the restart would wait for it for ever. So rank 0 names a new part, and every other rank asks to be let in until
    it is answered: only a rank 0 that is alive answers.
    """
    if rank == 0:
        name = uuid.uuid4().hex
        store.set("meeting", name)
        for other in range(1, size):
            store.set(store.get(f"{name}/{other}").decode(), "come in")
        return PrefixStore(name, store)
    me = uuid.uuid4().hex
    end = time.monotonic() + MEETING.total_seconds()
    while time.monotonic() < end:
        name = store.get("meeting").decode()
        store.set(f"{name}/{rank}", me)
        with contextlib.suppress(dist.DistStoreError):  # not answered: the name is of an earlier attempt
            store.wait([me], datetime.timedelta(seconds=1))
            return PrefixStore(name, store)
    raise UserError(f"rank {rank} waited {MEETING} for rank 0, which did not come; is every node running?")


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """The device of that name; "auto" is the best that is there."""
    if device != "auto":
        return torch_device(f"cuda:{local_rank}" if device == "cuda" else device)
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def die_with_parent() -> None:
    """Let the system end this process when its parent dies, so that none is left behind (Linux)."""
    if sys.platform.startswith("linux"):
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def wrap(module: nn.Module, world: World, parallel: Literal["ddp", "fsdp"]) -> nn.Module:
    """DDP, or FSDP2 with every layer a unit of its own; the module itself when there is one rank."""
    if world.size == 1:
        return module
    if parallel == "ddp":
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


def broadcast_from_rank0(world: World, value: Any) -> Any:
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


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor that is divided over the ranks, put together; all ranks must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(pattern: Tensor, tensor: Tensor) -> Tensor:
    """A whole tensor as `pattern` is: its device and number type, and divided over the ranks if that is."""
    if isinstance(pattern, DTensor):
        return distribute_tensor(tensor.to(pattern.device), pattern.device_mesh, pattern.placements)
    return tensor.to(device=pattern.device, dtype=pattern.dtype)
