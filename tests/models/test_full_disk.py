"""A model that no longer fits on the disk: the old one stays, and the words say how much is missing."""

import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from heedful.errors import UserError
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.vit import Vit, VitConfig


def model(value: float) -> Vit:
    vit = Vit(VitConfig(image_size=8, patch_size=4, d_model=16, d_ff=32, n_heads=2, n_layers=1, head="pool"))
    torch.nn.init.constant_(vit.class_token.vector, value)
    return vit


@pytest.mark.parametrize("limit", [2000, 100])  # in the middle of the weights; in the settings before them
def test_a_full_disk_leaves_the_old_model_and_says_how_much_is_missing(limit: int, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the middle."""
    folder, message = tmp_path / "best", tmp_path / "message"
    save_model(folder, model(1.0), None)
    needed = sum(tensor.nbytes for tensor in weights_of(model(2.0)).values())
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            save_model(folder, model(2.0), None)
        except UserError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            message.write_text(str(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    words = message.read_text()
    assert f"{folder}: cannot be written" in words and "File too large" in words
    assert f"{needed:,} bytes" in words and "are free" in words and "--resume" in words
    message.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert float(load_model(folder).expect(Vit).class_token.vector.detach().mean()) == 1.0


def test_other_failures_are_not_called_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("heedful.models.model_io.save_file", fail)
    with pytest.raises(OSError, match="Input/output error"):
        save_model(tmp_path / "best", model(1.0), None)
    assert not list(tmp_path.iterdir())
