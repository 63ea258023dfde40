"""How much of the machine this process may use.

Names of devices: cpu, cuda, cuda:N, mps. Which of them are there, the library that computes must say.

The devices that torch can compute on.
"""

import os
import re
from collections.abc import Sequence

import torch

from heedful.errors import UserError


def n_cores() -> int:
    """Fewer than the machine has, in a container or under `taskset`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


NAME = re.compile(r"cpu|mps|cuda(?::([0-9]{1,4}))?")
EXPECTED = "expected cpu, cuda, cuda:N (the GPU of that number, from 0) or mps"


def device_name(given: object) -> str:
    """The name of one device as heedful writes it: "cuda" is "cuda:0"."""
    if not isinstance(given, str) or (found := NAME.fullmatch(given)) is None:
        raise UserError(f"device = {given!r}: there is no device of that name; {EXPECTED}")
    return f"cuda:{int(found[1] or 0)}" if given.startswith("cuda") else given


def device_names(given: object) -> list[str]:
    """Those of several with commas between them: "cuda:0,cuda:1"."""
    return [device_name(one.strip()) for one in given.split(",")] if isinstance(given, str) else [device_name(given)]


def cuda_index(name: str) -> int:
    """The number of a GPU, from its name as heedful writes it."""
    return int(name.removeprefix("cuda:"))


def absent(name: str, there: Sequence[str], *, for_whom: str) -> UserError:
    """The error for a device that is not there: what was asked, and what there is."""
    return UserError(f"device = {name!r}: {for_whom} finds no such device here; there is: {', '.join(there)}")


def torch_device(name: str) -> torch.device:
    """The device of that name, or a UserError that says which there are."""
    wanted, there = device_name(name), torch_devices()
    if wanted not in there:
        raise absent(wanted, there, for_whom="torch")
    return torch.device(wanted)


def torch_devices() -> list[str]:
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*found, "mps"] if torch.backends.mps.is_available() else found
