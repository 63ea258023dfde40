"""Training with several processes: the same command under torchrun trains the same model on the same batches.

With one process every function here returns at once.
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

START_TIMEOUT = datetime.timedelta(minutes=10)
"""How long ranks wait for each other at the start; clusters start slowly."""


@dataclass(frozen=True)
class World:
    """The rank of this process in the run, the number of processes, and the device of its tensors."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this process prints, logs and writes: rank 0 alone does."""
        return self.rank == 0


@contextlib.contextmanager
def joined_world(device: str) -> Iterator[World]:
    """Join the process group if torchrun started this process, and leave it at the end of the block."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local)
    if size == 1:
        yield World(0, 1, chosen)
        return
    die_with_parent()
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    store, rank, size = next(rendezvous("env://", timeout=START_TIMEOUT))
    # The timeout is long, since the other ranks wait while rank 0 prepares the data.
    dist.init_process_group(
        backend, store=fresh_store(store, rank, size), rank=rank, world_size=size, timeout=datetime.timedelta(hours=12)
    )
    try:
        yield World(rank, size, chosen)
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise UserError(f"another of the {size} processes has ended: rank {rank} stops ({error})") from error
        raise
    finally:
        dist.destroy_process_group()


def fresh_store(store: Store, rank: int, size: int) -> Store:
    """Return a namespace of torchrun's store that no earlier attempt has written to.

    torchrun keeps one store over restarts. A rank that reads the address of another rank from before the restart waits
    for it forever. So rank 0 names a new namespace, and every other rank asks to join until it is answered: only a rank
    0 that is running answers.
    """
    if rank == 0:
        name = uuid.uuid4().hex
        store.set("namespace", name)
        for other in range(1, size):
            store.set(store.get(f"{name}/{other}").decode(), "joined")
        return PrefixStore(name, store)
    me = uuid.uuid4().hex
    end = time.monotonic() + START_TIMEOUT.total_seconds()
    while time.monotonic() < end:
        name = store.get("namespace").decode()
        store.set(f"{name}/{rank}", me)
        with contextlib.suppress(dist.DistStoreError):  # no answer: the name is from an earlier attempt
            store.wait([me], datetime.timedelta(seconds=1))
            return PrefixStore(name, store)
    raise UserError(f"rank {rank} waited {START_TIMEOUT} for rank 0, which did not answer; is every node running?")


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """Return the device of a name; "auto": CUDA, else MPS, else the CPU."""
    if device != "auto":
        return torch_device(f"cuda:{local_rank}" if device == "cuda" else device)
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies, so that no rank is left running (Linux)."""
    if sys.platform.startswith("linux"):
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def wrap(module: nn.Module, world: World, parallel: Literal["ddp", "fsdp"]) -> nn.Module:
    """Wrap a module in DDP, or in FSDP2 with each layer as a unit; with one rank return the module itself."""
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
    """Exchange gradients between ranks only in the last micro-batch; forward and backward both belong in the block."""
    if isinstance(module, DistributedDataParallel):
        with contextlib.nullcontext() if last else module.no_sync():
            yield
    elif isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
        yield
    else:
        yield


def sum_over_ranks(world: World, *numbers: float) -> list[float]:
    """Return the sum of each number over all ranks; integers are exact."""
    if world.size == 1:
        return list(numbers)
    kind = torch.float32 if world.device.type == "mps" else torch.float64
    total = torch.tensor(numbers, dtype=kind, device=world.device)
    dist.all_reduce(total)
    return total.tolist()


def broadcast_from_rank0(world: World, value: Any) -> Any:
    """Return rank 0's value, which must fit into JSON, on all ranks."""
    if world.size == 1:
        return value
    text = json.dumps(value).encode()  # torch.distributed sends objects as pickle
    size = torch.tensor([len(text)], device=world.device)
    dist.broadcast(size, src=0)
    data = torch.tensor(list(text), dtype=torch.uint8, device=world.device).resize_(int(size))
    dist.broadcast(data, src=0)
    return json.loads(bytes(data.tolist()))


def any_rank(world: World, flag: bool) -> bool:
    """Return whether the flag is set on any rank."""
    return sum_over_ranks(world, float(flag))[0] > 0


def barrier(world: World) -> None:
    """Wait until all ranks are here."""
    if world.size > 1:
        dist.barrier()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor that is divided over the ranks; all ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(pattern: Tensor, tensor: Tensor) -> Tensor:
    """Give a whole tensor the device and number type of `pattern`, and divide it over the ranks if `pattern` is."""
    if isinstance(pattern, DTensor):
        return distribute_tensor(tensor.to(pattern.device), pattern.device_mesh, pattern.placements)
    return tensor.to(device=pattern.device, dtype=pattern.dtype)
