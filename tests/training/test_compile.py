"""run.compile compiles the model once, for batches of any shape, and changes the speed of a step, not its result."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from heedful import train
from small_run import OVERRIDES, write_corpus

# float64, where only the order of sums differs; a few steps of several shapes.
FEW = [
    *OVERRIDES, "run.precision=float64", "run.steps=4", "run.micro_batches=1", "run.validate_every=4",
    "run.save_every=4", "run.validation_sentences=0", "run.metric=loss", "data.workers=0", "tokenizer.sample_alpha=0.0",
    "model.dropout=0.0",
]  # fmt: skip


def test_the_model_is_compiled_once_for_batches_of_any_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[dict[str, Any]] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: compiled.append(options))
    source, target = write_corpus(tmp_path / "corpus")
    train(folder=tmp_path / "run", source=source, target=target, overrides=[*FEW, "run.compile=true"])
    assert compiled == [{"dynamic": True}]


@pytest.mark.long
def test_a_compiled_model_learns_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled graph runs in PyTorch's own operators; generating C++ would take minutes."""
    compiled: list[dict[str, Any]] = []
    plainly = torch.nn.Module.compile

    def compile_quickly(module: torch.nn.Module, *arguments: Any, **options: Any) -> None:
        compiled.append(options)
        plainly(module, *arguments, **options, backend="aot_eager")

    monkeypatch.setattr(torch.nn.Module, "compile", compile_quickly)
    source, target = write_corpus(tmp_path / "corpus")
    weights = {}
    for how in ("plain", "compiled"):
        overrides = [*FEW, f"run.compile={str(how == 'compiled').lower()}"]
        train(folder=tmp_path / how, source=source, target=target, overrides=overrides)
        weights[how] = load_file(tmp_path / how / "last" / "model.safetensors")
    assert len(compiled) == 1
    apart = {name: float((weights["plain"][name] - weights["compiled"][name]).abs().max()) for name in weights["plain"]}
    assert max(apart.values()) <= 1e-10
    assert any(tensor.dtype == torch.float64 for tensor in weights["plain"].values())
