import sys
from pathlib import Path

import pytest

import run_events
from heedful.errors import MissingExtra
from heedful.training import TensorBoardLog
from run_events import as_event


def test_without_the_extra_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"TensorBoard .*pip install 'heedful\[track\]'"):
        TensorBoardLog(tmp_path)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_the_numbers_of_steps_and_validations_become_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = TensorBoardLog(tmp_path)
    for number in (50, 100):
        log(as_event("step", **run_events.step(number, loss=100 / number, grad_norm=float("nan"))))
    log(as_event("validation", **run_events.validation(100)))
    log(as_event("note", text="not a number"))
    log.close()
    found = curves(tmp_path)
    assert found["train/loss"] == [(50, 2.0), (100, 1.0)]
    assert found["validation/bleu"] == [(100, pytest.approx(12.313))]
    assert {"train/lr", "train/tokens_per_second", "validation/perplexity", "validation/chrf"} <= set(found)
    assert "train/grad_norm" not in found  # null is no point of a curve


def test_a_run_without_a_step_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = TensorBoardLog(tmp_path)
    log(as_event("note", text="stopped at once"))
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_overwrites_the_curve_after_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    first = TensorBoardLog(tmp_path)
    for number in (50, 100, 150, 200):
        first(as_event("step", **run_events.step(number, loss=1.0)))
    first.close()
    second = TensorBoardLog(tmp_path)
    second(as_event("step", **run_events.step(150, loss=2.0)))
    second.close()
    assert curves(tmp_path)["train/loss"] == [(50, 1.0), (100, 1.0), (150, 2.0)]
