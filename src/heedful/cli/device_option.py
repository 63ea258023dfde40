"""`--set device=…`, for commands that have a dozen options already: where to compute is no setting of a search."""

from typing import Any

from heedful.devices import device_names
from heedful.errors import UserError


def take_devices(values: dict[str, Any]) -> list[str]:
    """The devices, one or several, taken out of the values."""
    return device_names(values.pop("device", "cpu"))


def take_device(values: dict[str, Any]) -> str:
    """The device, of which there may be one."""
    names = take_devices(values)
    if len(names) > 1:
        raise UserError(f"device = '{','.join(names)}': this command computes on one device; name one of them")
    return names[0]
