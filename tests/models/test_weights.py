"""A model folder in fewer bits: no number far off, the rest untouched, and nothing false believed."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.models.model_io import CONFIG, FORMAT, WEIGHTS, load_model, save_model, weights_of
from heedful.models.weights import SCALE, from_int8, to_int8
from model_folders import logits, make, refused, sealed


def test_no_number_is_further_off_than_half_a_scale():
    matrix = torch.randn(50, 33, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 50)[:, None]
    matrix[7] = 0.0
    held = to_int8({"matrix": matrix})
    again = from_int8(held["matrix"], held["matrix" + SCALE])
    assert ((again - matrix).abs() <= held["matrix" + SCALE][:, None] * 0.5001).all()
    assert torch.equal(again[7], matrix[7])
    assert held["matrix"].dtype == torch.int8
    assert held["matrix"][:7].abs().amax(dim=1).tolist() == [127] * 7


def test_twice_is_once():
    """What was quantised is not changed by quantising it again."""
    held = to_int8({"a": torch.randn(40, 20, generator=torch.Generator().manual_seed(1))})
    again = to_int8({"a": from_int8(held["a"], held["a" + SCALE])})
    assert torch.equal(again["a"], held["a"])


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_a_folder_in_int8_is_the_model_nearly(tmp_path, tied):
    model = make(tied=tied)
    folder = save_model(tmp_path / "model", model, None, precision="int8")
    stored = load_file(folder / WEIGHTS)
    assert {t.dtype for name, t in stored.items() if t.dim() == 2} == {torch.int8}
    loaded = load_model(folder).model
    assert loaded.config == model.config
    for name, tensor in weights_of(model).items():
        ours = weights_of(loaded)[name]
        assert ours.dtype == torch.float32
        if tensor.dim() == 1:
            assert torch.equal(ours, tensor), name
    difference = (logits(loaded) - logits(model)).abs().max() / logits(model).abs().max()
    assert 0 < difference < 0.05


def test_a_folder_in_float16_is_half_as_large(tmp_path):
    model = make(d_model=64)
    whole = save_model(tmp_path / "whole", model, None)
    half = save_model(tmp_path / "half", model, None, precision="float16")
    assert (half / WEIGHTS).stat().st_size < 0.6 * (whole / WEIGHTS).stat().st_size


def test_a_folder_in_float16_computes_in_float32_on_a_processor(tmp_path):
    """As docs/models.md says: in float16 a processor is several times slower."""
    half = save_model(tmp_path / "half", make(d_model=64), None, precision="float16")
    stored, ready = load_model(half, as_stored=True).model, load_model(half).model
    assert {tensor.dtype for tensor in weights_of(stored).values()} == {torch.float16}
    for name, tensor in weights_of(ready).items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, weights_of(stored)[name].float())


def changed(folder, change):
    stored = load_file(folder / WEIGHTS)
    change(stored)
    (folder / WEIGHTS).unlink()
    save_file(stored, folder / WEIGHTS)
    return sealed(folder)


MATRIX, VECTOR = "encoder.layers.0.attention.to_q.weight", "encoder.layers.0.attention.to_q.bias"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(MATRIX + SCALE), ("missing", MATRIX + SCALE)),
        (lambda t: t.update({MATRIX + SCALE: torch.ones(3)}), (MATRIX + SCALE, "shape (3,)")),
        (lambda t: t.update({MATRIX + SCALE: torch.full((8,), torch.nan)}), (MATRIX + SCALE, "not finite")),
        (lambda t: t.update({MATRIX + SCALE: torch.ones(8).to(torch.int8)}), (MATRIX + SCALE, "I8")),
        (lambda t: t.update({MATRIX: t[MATRIX].float()}), ("unexpected", MATRIX + SCALE)),
        (lambda t: t.update({VECTOR: t[VECTOR].to(torch.int8)}), (VECTOR, "I8")),
    ],
    ids=["no scale", "wrong shape", "not a number", "scale of whole numbers", "scale too many", "vector"],
)
def test_what_does_not_fit_is_refused(tmp_path, change, words):
    folder = save_model(tmp_path / "model", make(), None, precision="int8")
    assert json.loads((folder / CONFIG).read_text())["format"] == FORMAT
    refused(changed(folder, change), WEIGHTS, *words)
