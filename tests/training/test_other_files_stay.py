"""A run leaves other things alone: files that were there before, ignored signals, models of an earlier run."""

import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heedful import train
from heedful.cli.main import run as heedful
from heedful.errors import UserError
from heedful.training.checkpoint import list_checkpoints
from heedful.training.distributed import choose_device
from heedful.training.signals import stop_requests
from heedful.training.train import RUN_FOLDERS, Run
from small_run import OVERRIDES, write_corpus

QUICK = [*OVERRIDES, "data.workers=0", "run.steps=4", "run.save_every=2", "run.validate_every=1000"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def learn(folder: Path, corpus: tuple[Path, Path], *more: str, resume: bool = False) -> Run:
    files = {} if resume else {"source": corpus[0], "target": corpus[1]}
    return train(folder=folder, overrides=list(more) if resume else [*QUICK, *more], resume=resume, **files)


@pytest.mark.parametrize("name", RUN_FOLDERS)
def test_a_folder_with_other_files_is_not_used_as_a_run_folder(
    name: str, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    notes = tmp_path / name / "notes.md"
    notes.write_text("mine")
    with pytest.raises(UserError, match=rf"{name}, but no run"):
        learn(tmp_path, corpus, "data.hold_out=0")
    assert notes.read_text() == "mine" and sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_a_refused_run_deletes_its_files(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.hold_out = 0 leaves nothing to validate with"):
        learn(tmp_path / "run", corpus, "data.hold_out=0")
    assert not {"data", "tokenizers", "settings.toml"} & {path.name for path in (tmp_path / "run").iterdir()}
    assert learn(tmp_path / "run", corpus).step == 4


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_folder_that_cannot_be_made(place: str, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot hold a run"):
        learn(tmp_path / place, corpus)
    assert heedful(["demo", "--output", str(tmp_path / "file")]) == 1


def test_an_ignored_signal_stays_ignored() -> None:
    """As under nohup, which outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as requests:
            os.kill(os.getpid(), signal.SIGHUP)
            assert requests.reason() is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert requests.reason() == "stopped by SIGTERM"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_in_a_thread(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    found: list[Run] = []
    thread = threading.Thread(target=lambda: found.append(learn(tmp_path / "run", corpus)))
    thread.start()
    thread.join()
    assert [one.step for one in found] == [4]


def test_a_stop_during_preparation_ends_the_run(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    said: list[str] = []

    def interrupt(event: dict) -> None:
        said.append(str(event.get("text", event["event"])))
        if "doubtful" in said[-1]:
            os.kill(os.getpid(), signal.SIGINT)

    run = train(folder=tmp_path / "run", source=corpus[0], target=corpus[1], overrides=QUICK, listeners=[interrupt])
    assert run.interrupted and run.step == 0 and "stopped by SIGINT" in run.reason
    assert said[-1] == "stop" and not any("learned" in text for text in said)
    assert not (tmp_path / "run" / "tokenizers").exists()
    assert learn(tmp_path / "run", corpus, resume=True).step == 4


def test_without_a_readable_checkpoint_the_models_stay(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    learn(tmp_path / "run", corpus)
    before = (tmp_path / "run" / "best" / "model.safetensors").read_bytes()
    for again in range(2):
        for folder in list_checkpoints(tmp_path / "run" / "checkpoints"):
            (folder / "model.safetensors").write_bytes(b"broken")
        with pytest.raises(UserError, match=r"none of its checkpoints can be read.*--init-from .*best"):
            learn(tmp_path / "run", corpus, "run.steps=6", resume=True)
        assert (tmp_path / "run" / "best" / "model.safetensors").read_bytes() == before
        if not again:  # a step that was damaged once may be so again
            os.rename(
                tmp_path / "run" / "checkpoints" / "damaged-step-000004",
                tmp_path / "run" / "checkpoints" / "step-000004",
            )
            (tmp_path / "run" / "checkpoints" / "damaged-step-000004").mkdir()
    assert (tmp_path / "run" / "checkpoints" / "damaged-step-000004-2").exists()
    with pytest.raises(UserError, match="none of its checkpoints can be read"):  # nor when it is asked once more
        learn(tmp_path / "run", corpus, "run.steps=6", resume=True)
    assert (tmp_path / "run" / "best" / "model.safetensors").read_bytes() == before


def test_a_run_without_a_validation_has_a_best_of_averaged_weights(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    run = learn(tmp_path / "run", corpus, "run.ema=0.9")
    best, last = (load_file(run.folder / name / "model.safetensors") for name in ("best", "last"))
    average = load_file(run.folder / "checkpoints" / "step-000004" / "ema.safetensors")
    assert all(torch.equal(best[name], average[name]) for name in best)
    assert any(not torch.equal(best[name], last[name]) for name in best)


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "gpu"])
def test_a_device_that_is_not_there_is_refused_in_words(name: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match=r"device.*(is not available to torch|no device of that name)"):
        choose_device(name)
    assert choose_device("cpu") == torch.device("cpu")
