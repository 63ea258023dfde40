"""Resumed = uninterrupted, bit for bit: weights, optimiser, generators, data position, scores."""

import dataclasses
from pathlib import Path

import pytest
import torch

from heedful.data.collate import Batch
from heedful.training import Files
from heedful.training.checkpoint import Checkpoint, list_checkpoints, load_checkpoint
from heedful.training.data_preparation import PreparedData, prepare_data
from heedful.training.distributed import World
from small_run import open_small, settings, write_corpus

WORLD = World(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    folder = tmp_path_factory.mktemp("prepared")
    source, target = write_corpus(folder)
    corpora = Files.of(source, target, None, None, None).corpora()
    return prepare_data(folder, corpora, None, settings(), tokenizers=None, notify=print)


@pytest.fixture(scope="module")
def uninterrupted(prepared: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train to the end, keeping a checkpoint of every step."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    trainer = open_small(folder, prepared, settings("run.save_every=1", "run.keep_last=100"), world=WORLD)
    torch.set_num_threads(1)
    assert trainer.fit() == "all 60 steps are done"
    assert trainer.state.loader.epoch >= 2, "the run must pass the end of an epoch twice"
    assert any(load_checkpoint(path).state.loader.position == 0 for path in list_checkpoints(trainer.checkpoints))
    return trainer.checkpoints


def assert_same(resumed: Checkpoint, expected: Checkpoint) -> None:
    ours, theirs = dataclasses.asdict(resumed.state), dataclasses.asdict(expected.state)
    del ours["seconds"], theirs["seconds"]
    assert ours == theirs
    for kind in ("model", "optimiser", "generators", "ema"):
        ours, theirs = getattr(resumed, kind), getattr(expected, kind)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("first", range(1, 60, 6))
def test_resumed_at_each_of_60_steps(first: int, prepared: PreparedData, uninterrupted: Path, tmp_path: Path) -> None:
    """Resume at steps first to first + 5; all cases together cover all 60 steps, with epoch ends and validations."""
    expected = load_checkpoint(uninterrupted / "step-000060")
    for step in range(first, min(first + 6, 60)):
        folder = tmp_path / str(step)
        checkpoint = load_checkpoint(uninterrupted / f"step-{step:06d}")
        trainer = open_small(folder, prepared, settings(), world=WORLD, checkpoint=checkpoint)
        trainer.fit()
        assert_same(load_checkpoint(folder / "checkpoints" / "step-000060"), expected)


def test_a_stop_at_any_step_is_saved_at_that_step(prepared: PreparedData, uninterrupted: Path, tmp_path: Path) -> None:
    """A request to stop during a step finishes and saves the step, and resuming gives the same end."""
    trainer = open_small(tmp_path, prepared, settings(), world=WORLD)
    trainer.requests.reason = lambda: "asked" if trainer.state.step == 33 else None  # type: ignore[method-assign]
    assert trainer.fit() == "asked"
    checkpoint = load_checkpoint(tmp_path / "checkpoints" / "step-000033")
    assert_same(checkpoint, load_checkpoint(uninterrupted / "step-000033"))
    trainer = open_small(tmp_path, prepared, settings(), world=WORLD, checkpoint=checkpoint)
    trainer.fit()
    assert_same(
        load_checkpoint(tmp_path / "checkpoints" / "step-000060"), load_checkpoint(uninterrupted / "step-000060")
    )


def test_an_abandoned_validation_is_repeated_on_resume(
    prepared: PreparedData, uninterrupted: Path, tmp_path: Path
) -> None:
    """A signal during a validation saves the step without a score, and resuming validates first."""
    trainer = open_small(tmp_path, prepared, settings(), world=WORLD)
    validator = trainer.validator
    assert validator is not None
    score_batch = validator.score_batch

    def interrupted(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, None]:
        trainer.requests._receive(15, None)
        return score_batch(model, batch)

    validator.score_batch = interrupted  # type: ignore[method-assign]
    assert trainer.fit() == "stopped by SIGTERM"
    checkpoint = load_checkpoint(tmp_path / "checkpoints" / "step-000020")
    assert checkpoint.state.scores == {}
    trainer = open_small(tmp_path, prepared, settings(), world=WORLD, checkpoint=checkpoint)
    trainer.fit()
    assert_same(
        load_checkpoint(tmp_path / "checkpoints" / "step-000060"), load_checkpoint(uninterrupted / "step-000060")
    )


def test_another_seed_is_another_run(prepared: PreparedData, uninterrupted: Path, tmp_path: Path) -> None:
    """The comparison above can fail: a different seed gives different weights."""
    trainer = open_small(tmp_path, prepared, settings("run.seed=2"), world=WORLD)
    trainer.fit()
    resumed, expected = (
        load_checkpoint(tmp_path / "checkpoints" / "step-000060"),
        load_checkpoint(uninterrupted / "step-000060"),
    )
    assert any(not torch.equal(resumed.model[name], expected.model[name]) for name in expected.model)
