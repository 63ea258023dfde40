"""The devices that torch can compute on."""

import torch

from heedful.devices import absent, device_name


def torch_device(name: str) -> torch.device:
    """The device of that name, or a UserError that says which there are."""
    wanted, there = device_name(name), torch_devices()
    if wanted not in there:
        raise absent(wanted, there, for_whom="torch")
    return torch.device(wanted)


def torch_devices() -> list[str]:
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*found, "mps"] if torch.backends.mps.is_available() else found
