"""Options that several commands share: their names, help texts and panels of `--help`, and how --device is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from heedful.devices import EXPECTED, NAME, best_device, device_name
from heedful.errors import UserError

# The panels of a command's help, in this order.
DATA = Group("Data", sort_key=1)
MODEL = Group("Model", sort_key=2)
RUN = Group("Run", sort_key=3)
OUTPUT = Group("Output", sort_key=4)

Device = Annotated[
    str,
    Parameter(
        group=RUN, help="Where to compute: cpu, cuda, cuda:N (GPU number N, from 0), mps; auto: a GPU, else cpu."
    ),
]
OutputFile = Annotated[
    Path | None,
    Parameter(
        name=["--output", "-o"],
        group=OUTPUT,
        help="Write to this file, called OUTPUT.part until it is complete; by default to standard output.",
    ),
]
Json = Annotated[bool, Parameter(group=OUTPUT, help="Print one JSON object, for programs.")]
Overrides = Annotated[list[str] | None, Parameter(name="--set", group=RUN)]
Engine = Annotated[
    Literal["auto", "torch", "ctranslate2"],
    Parameter(
        group=MODEL, help="torch runs every model, ctranslate2 is faster; auto: ctranslate2 for models it can run."
    ),
]
Compute = Annotated[
    Literal["float32", "int8"],
    Parameter(group=MODEL, help="Precision of the computation; int8 is faster and slightly less exact."),
]


def resolve_device(name: str) -> str:
    """Return the name of one device from `--device`: "auto" is a GPU if torch finds one, else the processor."""
    if "," in name:
        raise UserError(f"--device {name}: this command computes on one device; name one of them")
    if name == "auto":
        return best_device()
    if NAME.fullmatch(name) is None:
        raise UserError(f"--device {name}: there is no device of that name; {EXPECTED}, or auto")
    return device_name(name)


def resolve_devices(names: str) -> list[str]:
    """Return the devices of a `--device` that takes several, separated by commas."""
    return [resolve_device(name.strip()) for name in names.split(",")]


def refuse_option_keys(values: Mapping[str, Any], *options: str) -> None:
    """Raise a UserError if `--set` has a key that is an option of the command."""
    for name in options:
        if name in values:
            raise UserError(f"--set {name}={values[name]}: not a setting but an option: --{name} {values[name]}")
