"""A checkpoint is complete or absent, whatever happens: crashes at every call, flipped bits, cut files, a full disk."""

import os
import random
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from heedful.atomic_io import clear_unfinished
from heedful.data import LoaderState
from heedful.errors import UserError
from heedful.training.checkpoint import (
    Checkpoint,
    TrainerState,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune,
    save_checkpoint,
)

CRASHED = 77


def tensors(step: int) -> dict[str, Tensor]:
    return {"weight": torch.full((50, 20), float(step)), "bias": torch.arange(30.0) * step}


def save(folder: Path, step: int) -> Path:
    state = TrainerState(LoaderState(epoch=step // 3, position=step % 3, seed=1), step=step, scores={"1": 0.5})
    moments = {f"{name}/exp_avg": tensor / 2 for name, tensor in tensors(step).items()}
    generators = {"cpu": torch.get_rng_state()}
    return save_checkpoint(folder, state, model=tensors(step), optimiser=moments, generators=generators, ema={})


def is_whole(checkpoint: Checkpoint, step: int) -> bool:
    wanted = tensors(step)
    return checkpoint.state.step == step and all(torch.equal(checkpoint.model[name], wanted[name]) for name in wanted)


def in_child(work: Callable[[], None]) -> int:
    """Do the work in a fork, and return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def crash_at(number: int) -> None:
    """End this process at the given call that changes the disk, before or after the call takes effect."""
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(CRASHED)

    touching = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "shutil.rmtree"}
    sys.addaudithook(lambda event, arguments: count() if event in touching else None)
    fsync = os.fsync

    def fsync_between_counts(descriptor: int) -> None:
        count()
        fsync(descriptor)
        count()

    os.fsync = fsync_between_counts


def test_round_trip(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tmp_path, 5))
    assert is_whole(checkpoint, 5)
    assert checkpoint.state.loader == LoaderState(epoch=1, position=2, seed=1)
    assert checkpoint.state.scores == {"1": 0.5}
    assert torch.equal(checkpoint.generators["cpu"], torch.get_rng_state())
    assert checkpoint.versions["torch"] == torch.__version__


def test_a_crash_at_every_call_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """Save step 3, then prune to two, with 1 and 2 there: whenever it ends, two are whole and the newest is 2 or 3."""
    newest = set()
    for number in range(10_000):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        save(folder, 1)
        save(folder, 2)

        def work(folder: Path = folder, number: int = number) -> None:
            crash_at(number)
            save(folder, 3)
            prune(folder, keep_last=2, best=[])

        code = in_child(work)
        assert code in (0, CRASHED)
        clear_unfinished(folder)
        whole = [load_checkpoint(path).state.step for path in list_checkpoints(folder)]
        assert len(whole) >= 2 and whole[-1] in (2, 3)
        assert is_whole(load_checkpoint(list_checkpoints(folder)[-1]), whole[-1])
        assert all(path.name.startswith("step-") for path in folder.iterdir()), "nothing else is left lying around"
        newest.add(whole[-1])
        if code == 0:
            break
    assert number > 30, "every write, sync, rename and deletion is a call"
    assert newest == {2, 3}
    assert whole == [2, 3]


def test_a_thousand_flipped_bits_are_found(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    files = sorted(folder.iterdir())
    draw = random.Random(0)
    for _ in range(1000):
        path = draw.choice(files)
        content = path.read_bytes()
        place, bit = draw.randrange(len(content)), draw.randrange(8)
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :])
        if path.name == "manifest.json" and path.read_bytes().split() == content.split():
            continue  # white space between words of JSON says nothing
        with pytest.raises(UserError, match=str(folder.name)):
            load_checkpoint(folder)
        path.write_bytes(content)
    assert is_whole(load_checkpoint(folder), 1)


def test_two_hundred_cut_files_are_found(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    draw = random.Random(0)
    files = sorted(path for path in folder.iterdir())
    for _ in range(200):
        path = draw.choice(files)
        content = path.read_bytes()
        path.write_bytes(content[: draw.randrange(len(content) - 1)])
        with pytest.raises(UserError):
            load_checkpoint(folder)
        path.write_bytes(content)


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    for step in (2, 3):
        (tmp_path / f"step-{step:06d}" / "model.safetensors").write_bytes(b"broken")
    notes: list[str] = []
    checkpoint = newest_checkpoint(tmp_path, notes.append)
    assert checkpoint is not None and is_whole(checkpoint, 1)
    assert len(notes) == 2 and "step-000003" in notes[0] and "step-000002" in notes[1]
    assert newest_checkpoint(tmp_path, notes.append) is not None
    assert len(notes) == 2, "a damaged one is tried once, not at every start"


def test_a_full_disk_leaves_the_old_checkpoint_and_reports_the_missing_bytes(tmp_path: Path) -> None:
    """A limit on the size of files simulates the full disk: writing fails in the middle."""
    save(tmp_path, 1)
    message = tmp_path / "message"

    def work() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            save(tmp_path, 2)
        except UserError as error:
            message.write_text(str(error))

    assert in_child(work) == 0
    words = message.read_text()
    assert "no room" in words and "bytes" in words and "--resume" in words
    message.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert is_whole(load_checkpoint(tmp_path / "step-000001"), 1)


def test_missing_room_is_noticed_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="10 are free"):
        save(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_pruning_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path, step)
    prune(tmp_path, keep_last=2, best=[3])
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000003", "step-000006", "step-000007"]
