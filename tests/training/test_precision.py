"""Training in bfloat16: chosen if the device has units for it, recorded, near float32, resumed bit for bit."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from deterministic import numbers, whole_numbers
from heedful import train
from heedful.config import read_toml
from heedful.nn.attention import attend, attend_causal, attend_fused
from heedful.training import runtime
from heedful.training.losses import agreeing_cross_entropy, linear_cross_entropy
from heedful.training.muon import Muon
from heedful.training.optim import OptimiserSettings, make_optimiser
from small_run import OVERRIDES, write_corpus
from small_tasks import CASES

QUICK = [*OVERRIDES, "run.steps=8", "run.validate_every=8", "run.save_every=4"]


def in_bfloat16() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def distance(ours: Tensor, expected: Tensor) -> float:
    """Return the relative distance from the expected tensor."""
    return float((ours.detach().float() - expected.detach()).norm() / expected.detach().norm())


def recorded(folder: Path) -> str:
    return str(read_toml(folder / "settings.toml")["run"]["precision"])


@pytest.mark.parametrize("loss", [linear_cross_entropy, partial(agreeing_cross_entropy, agreement=2.0)])
def test_the_loss_is_near_that_of_float32_and_its_products_are_not_float32(loss: Callable[..., Tensor]) -> None:
    states = numbers(40, 32, name="states", dtype=torch.float32).requires_grad_()
    weight = numbers(50, 32, name="weight", dtype=torch.float32).requires_grad_()
    target = whole_numbers(20, below=50, name="target").repeat(2)
    exact = loss(states, weight, target, label_smoothing=0.1)
    with in_bfloat16():
        ours = loss(states, weight, target, label_smoothing=0.1)
    assert ours.dtype is exact.dtype is torch.float32
    assert 0 < distance(ours, exact) < 0.01
    for a, b in zip(
        torch.autograd.grad(ours, [states, weight]), torch.autograd.grad(exact, [states, weight]), strict=True
    ):
        assert a.dtype is torch.float32
        assert 0 < distance(a, b) < 0.02


@pytest.mark.parametrize("kernel", [attend_fused, attend_causal])
def test_the_kernel_computes_in_float32_when_it_has_to_learn(kernel) -> None:  # type: ignore[no-untyped-def]
    """With the same rounded inputs only the rounding of the output differs."""
    q, k, v = (numbers(2, 3, 5, 8, name=name, dtype=torch.bfloat16).requires_grad_() for name in "qkv")
    mask = torch.ones(5, 5).tril().bool() if kernel is attend_causal else None
    exact = [x.detach().float().requires_grad_() for x in (q, k, v)]
    with in_bfloat16():
        ours = kernel(q, k, v)
    expected = attend(*exact, mask)
    assert ours.dtype is torch.bfloat16
    torch.testing.assert_close(ours, expected.bfloat16(), atol=0, rtol=0.01)
    for a, b in zip(
        torch.autograd.grad(ours.float().square().sum(), [q, k, v]),
        torch.autograd.grad(expected.bfloat16().float().square().sum(), exact),
        strict=True,
    ):
        assert distance(a, b) < 0.005


def test_a_bias_may_be_of_any_numbers() -> None:
    q, k, v = (numbers(1, 2, 4, 8, name=name, dtype=torch.bfloat16).requires_grad_() for name in "qkv")
    bias = numbers(2, 4, 4, name="bias", dtype=torch.bfloat16)
    ours = attend_fused(q, k, v, bias=bias)
    expected = attend(q.detach().float(), k.detach().float(), v.detach().float(), bias=bias.float())
    assert distance(ours, expected) < 0.01


def test_muon_in_bfloat16_is_nearly_orthogonal_too() -> None:
    layer = torch.nn.Linear(24, 16)  # the bias is for AdamW
    optimiser = make_optimiser(layer, OptimiserSettings(kind="muon", lr=1.0), bfloat16=True)
    assert isinstance(optimiser, Muon)
    before = layer.weight.detach().clone()
    layer.weight.grad = numbers(16, 24, name="gradient", dtype=torch.float32)
    for group in optimiser.param_groups:
        group["lr"] = 1.0
    optimiser.step()
    assert layer.weight.dtype is optimiser.state[layer.weight]["momentum"].dtype is torch.float32
    values = torch.linalg.svdvals(layer.weight.detach() - before)
    assert 0.6 < values.min() / values.max() < 1.0


@pytest.mark.parametrize(("units", "name"), [(True, "bfloat16"), (False, "float32")])
def test_auto_precision_is_resolved_and_recorded(
    units: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "has_bfloat16_units", lambda device: units)
    source, target = write_corpus(tmp_path / "corpus")
    train(folder=tmp_path / "run", source=source, target=target, overrides=QUICK)
    assert recorded(tmp_path / "run") == name
    # On another machine the run goes on as it began, unless somebody says otherwise.
    monkeypatch.setattr(runtime, "has_bfloat16_units", lambda device: not units)
    train(folder=tmp_path / "run", resume=True, overrides=["run.steps=9"])
    assert recorded(tmp_path / "run") == name
    train(folder=tmp_path / "run", resume=True, overrides=["run.steps=10", "run.precision=float32"])
    assert recorded(tmp_path / "run") == "float32"


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_resumed_is_uninterrupted_in_bfloat16(kind: str, tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path / "corpus")
    chosen = [*QUICK, "run.precision=bfloat16", f"optimiser.kind={kind}", "optimiser.lr=0.004"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(folder=whole, source=source, target=target, overrides=chosen)
    stopped = False

    def stop_at_four(event: dict[str, object]) -> None:
        nonlocal stopped
        if event["event"] == "saved" and not stopped:
            stopped = True
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder=parts, source=source, target=target, overrides=chosen, listeners=[stop_at_four])  # type: ignore[list-item]
    train(folder=parts, resume=True)
    ours, expected = (load_file(folder / "last" / "model.safetensors") for folder in (parts, whole))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_learns_as_in_float32(tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path / "corpus")
    losses: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for precision, seen in losses.items():
        train(
            folder=tmp_path / precision,
            source=source,
            target=target,
            overrides=[*QUICK, f"run.precision={precision}", "run.steps=40", "run.log_every=5", "optimiser.lr=0.01"],
            listeners=[lambda event, seen=seen: seen.append(event["loss"]) if event["event"] == "step" else None],  # type: ignore[misc]
        )
    assert losses["float32"] != losses["bfloat16"]
    assert losses["float32"][-1] < losses["float32"][0] - 0.5
    for a, b in zip(*losses.values(), strict=True):
        assert a == pytest.approx(b, rel=0.02)


@pytest.mark.parametrize("name", ["image_classification", "masked_patches", "shuffled_patches"])
def test_pictures_are_learned_in_float64_too(name: str, tmp_path: Path) -> None:
    """Pixels are float32 whatever the precision of the model, and the saved model can be used."""
    case = CASES[name]
    few = ["data.workers=0", "run.steps=2", "run.validate_every=2", "run.precision=float64"]
    train(folder=tmp_path / "run", family="vit", overrides=[*case.overrides, *few], **case.files(tmp_path))  # type: ignore[arg-type]
    weights = load_file(tmp_path / "run" / "last" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float64}


@pytest.mark.parametrize(("first", "then"), [("float32", "float64"), ("float64", "float32")])
def test_a_running_average_is_resumed_in_another_precision(first: str, then: str, tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path / "corpus")
    began = [*QUICK, "data.workers=0", "run.steps=4", "run.validate_every=4", f"run.precision={first}"]
    assert "run.ema=0.9" in began
    train(folder=tmp_path / "run", source=source, target=target, overrides=began)
    train(folder=tmp_path / "run", resume=True, overrides=["run.steps=8", f"run.precision={then}"])
    average = load_file(tmp_path / "run" / "checkpoints" / "step-000008" / "ema.safetensors")
    assert {tensor.dtype for tensor in average.values()} == {getattr(torch, then)}
