"""The plan agrees with what the run then takes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heedful import train
from heedful.training import Files, read_log
from heedful.training.data_preparation import prepare_data
from heedful.training.distributed import World
from heedful.training.plan import make_plan
from small_run import OVERRIDES, open_small, settings, write_corpus


@pytest.mark.parametrize("ema", ["0.0", "0.9"])
@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16"])
def test_the_planned_disk_space_is_what_is_written(ema: str, precision: str, tmp_path: Path) -> None:
    """One checkpoint is kept, a second one exists while it is replaced, and there are three models."""
    source, target = write_corpus(tmp_path)
    kept = ["run.keep_last=1", "run.average=1", "run.keep_best=0"]
    few = ["data.workers=0", "run.steps=2", "run.validate_every=2", "run.save_every=2", "run.validation_sentences=0"]
    chosen = [*OVERRIDES, *kept, *few, f"run.ema={ema}", f"run.precision={precision}"]
    folder = train(folder=tmp_path / "run", source=source, target=target, overrides=chosen).folder
    [plan] = [event for event in read_log(folder / "log.jsonl") if event["event"] == "plan"]
    [checkpoint] = (folder / "checkpoints").iterdir()
    written = 2 * sum(size(path) for path in checkpoint.glob("*.safetensors") if path.stem != "generators")
    written += sum(size(folder / name / "model.safetensors") for name in ("best", "last", "average"))
    assert plan["disk_bytes"] == pytest.approx(written, rel=0.05)


def test_a_plan_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    """This includes the running statistics of a batch norm, since the number of passes depends on the machine."""
    source, target = write_corpus(tmp_path)
    files = Files.of(source, target, None, None, None)
    chosen = settings("model.norm=batch", "data.workers=0")
    prepared = prepare_data(tmp_path / "run", files.corpora(), None, chosen, tokenizers=None, notify=str)
    trainer = open_small(tmp_path / "run", prepared, chosen, world=World(0, 1, torch.device("cpu")))
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    assert any("running" in name for name in before)
    make_plan(trainer)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())


def size(path: Path) -> int:
    return sum(tensor.nbytes for tensor in load_file(path).values())
