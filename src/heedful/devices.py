"""Names of devices (cpu, cuda, cuda:N, mps), torch's devices, and the number of cores that this process may use.

Importing this module does not import torch, so that commands can check a name before they load a library.
"""

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.errors import UserError

if TYPE_CHECKING:
    import torch

NAME = re.compile(r"cpu|mps|cuda(?::([0-9]{1,4}))?")
EXPECTED = "expected cpu, cuda, cuda:N (the GPU of that number, from 0) or mps"

GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # of NVIDIA, of WSL, of AMD


def n_cores() -> int:
    """Count the cores that this process may use: fewer than the machine has in a container or under `taskset`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_name(name: object) -> str:
    """Normalize the name of one device: "cuda" becomes "cuda:0". Raise a UserError for any other value."""
    if not isinstance(name, str) or (match := NAME.fullmatch(name)) is None:
        raise UserError(f"device = {name!r}: there is no device of that name; {EXPECTED}")
    return f"cuda:{int(match[1] or 0)}" if name.startswith("cuda") else name


def device_names(names: object) -> list[str]:
    """Normalize device names that are separated by commas, such as "cuda:0,cuda:1"."""
    return [device_name(name.strip()) for name in names.split(",")] if isinstance(names, str) else [device_name(names)]


def best_device() -> str:
    """Return "cuda:0" if torch finds a CUDA device, else "cpu".

    torch is imported only on a machine that has the device file of a GPU driver. "mps" is never chosen, because
    CTranslate2, the faster engine, cannot use it.
    """
    if os.name == "posix" and not any(os.path.exists(path) for path in GPU_DRIVERS):
        return "cpu"
    import torch

    return "cuda:0" if torch.cuda.is_available() else "cpu"


def cuda_index(name: str) -> int:
    """Return the number of a GPU from its normalized name, such as 1 from "cuda:1"."""
    return int(name.removeprefix("cuda:"))


def absent(name: str, available: Sequence[str], *, for_whom: str) -> UserError:
    """Build the error for a device that a library (`for_whom`, such as "torch") does not find on this machine."""
    return UserError(f"device {name!r} is not available to {for_whom}; available: {', '.join(available)}")


def torch_device(name: str) -> "torch.device":
    """Return torch's device of this name, or raise a UserError that lists the available devices."""
    import torch

    device, available = device_name(name), torch_devices()
    if device not in available:
        raise absent(device, available, for_whom="torch")
    return torch.device(device)


def torch_devices() -> list[str]:
    """List the devices that torch can use on this machine."""
    import torch

    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names
