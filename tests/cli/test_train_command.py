"""`heedful train`: how options reach `heedful.train`, and mistakes that are reported before torch is imported."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heedful.cli import main


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each call of `heedful.train`, which does nothing."""
    received: list[dict[str, Any]] = []

    def train(**arguments: Any) -> SimpleNamespace:
        received.append(arguments)
        return SimpleNamespace(interrupted=arguments["dry_run"], left_at="saved at step 3")

    monkeypatch.setattr(importlib.import_module("heedful.training.train"), "train", train)
    return received


def test_each_kind_of_file_has_an_option(tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    run = str(tmp_path / "run")
    assert main.run(["train", run, "--source", "a.en", "b.en", "--target", "a.de", "b.de"]) == 0
    assert main.run(["train", run, "--source", "a.en", "--source", "b.en", "--target", "a.de", "b.de"]) == 0
    for call in calls:
        assert (call["folder"], call["source"], call["target"]) == (
            tmp_path / "run",
            [Path("a.en"), Path("b.en")],
            [Path("a.de"), Path("b.de")],
        )
        assert not any(call[name] for name in ("text", "labels", "tags", "images", "valid", "overrides"))
    for name in ("text", "labels", "tags", "images"):
        assert main.run(["train", run, f"--{name}", "x", "y", "--valid", "z"]) == 0
        assert (calls[-1][name], calls[-1]["valid"], calls[-1]["source"]) == ([Path("x"), Path("y")], Path("z"), ())
    assert main.run(["train", run, "--valid-source", "v.en", "--valid-target", "v.de", "--init-from", "old"]) == 0
    last = calls[-1]
    assert (last["valid_source"], last["valid_target"], last["init_from"]) == (Path("v.en"), Path("v.de"), Path("old"))


def test_a_validation_file_is_named_once(tmp_path: Path, calls: list[dict[str, Any]], capsys: Any) -> None:
    assert main.run(["train", str(tmp_path / "run"), "--text", "x", "--valid", "a", "--valid", "b"]) == 2
    assert "--valid" in capsys.readouterr().err
    assert not calls


def test_options_for_settings_become_overrides(tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    arguments = [
        "--steps",
        "9",
        "--lr",
        "1e-4",
        "--seed",
        "7",
        "--device",
        "cpu",
        "--for",
        "1h30m",
        "--set",
        "run.ema=0.5",
    ]
    assert main.run(["train", str(tmp_path / "run"), *arguments]) == 0
    assert sorted(calls[-1]["overrides"]) == [
        "optimiser.lr=0.0001",
        "run.device=cpu",
        "run.ema=0.5",
        "run.minutes=90.0",
        "run.seed=7",
        "run.steps=9",
    ]


def test_an_interrupted_run_prints_how_to_continue(tmp_path: Path, calls: list[dict[str, Any]], capsys: Any) -> None:
    assert main.run(["train", str(tmp_path / "run"), "--dry-run"]) == 130
    assert f"saved at step 3; continue with: heedful train {tmp_path / 'run'} --resume" in capsys.readouterr().err


def test_an_existing_run_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").touch()
    program = (
        f"import sys; from heedful.cli.main import run; assert run(['train', {str(tmp_path)!r}]) == 1\n"
        "assert 'torch' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "there is a run in this folder already; continue it with --resume" in process.stderr


def test_a_missing_tensorboard_is_reported_first(
    tmp_path: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else find(name))
    assert main.run(["train", str(tmp_path / "run"), "--tensorboard"]) == 1
    assert "pip install 'heedful[track]'" in capsys.readouterr().err
    assert not calls
