"""Options that several commands share: where --device computes, and keys of --set that are options."""

import os
import subprocess
import sys
from typing import get_args

import pytest
import torch

from heedful import devices
from heedful.cli.evaluate import Tokenize
from heedful.cli.options import refuse_option_keys, resolve_device, resolve_devices
from heedful.errors import UserError
from heedful.evaluation.metrics import TOKENIZERS


def test_auto_is_the_processor_without_a_gpu() -> None:
    """A machine without the driver of a GPU does not even import torch to find out."""
    program = (
        "import sys; from heedful.cli.options import resolve_device; from heedful import devices\n"
        "devices.GPU_DRIVERS = ('/nowhere',)\n"
        "assert resolve_device('auto') == 'cpu' and 'torch' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(("has_cuda", "expected"), [(True, "cuda:0"), (False, "cpu")])
def test_auto_asks_torch_where_a_driver_is_installed(
    monkeypatch: pytest.MonkeyPatch, has_cuda: bool, expected: str
) -> None:
    monkeypatch.setattr(devices, "GPU_DRIVERS", (os.devnull,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert resolve_device("auto") == expected


def test_devices_are_named() -> None:
    assert [resolve_device(name) for name in ("cpu", "cuda", "cuda:3", "mps")] == ["cpu", "cuda:0", "cuda:3", "mps"]
    assert resolve_devices("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu", "--device gpu: there is no device of that name; expected cpu, cuda, cuda:N"),
        ("cuda:0,cuda:1", "--device cuda:0,cuda:1: this command computes on one device"),
    ],
)
def test_a_wrong_device_is_an_error(name: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        resolve_device(name)


def test_options_are_no_settings() -> None:
    refuse_option_keys({"beam": 3}, "device", "language")
    with pytest.raises(UserError, match="--set device=cuda: not a setting but an option: --device cuda"):
        refuse_option_keys({"device": "cuda"}, "device", "language")


def test_evaluate_offers_every_tokenizer() -> None:
    assert get_args(Tokenize) == TOKENIZERS
