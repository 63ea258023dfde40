"""Pictures of any size: the model to start from decides, or the setting, or the one size that all have."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_tasks import CASES, write_images

from encoder_models import vit_folder
from heedful.errors import UserError
from heedful.models.folder import load_model
from heedful.training.run import Run, train

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: heedful[images]")

QUICK = [
    "data.batch_tokens=16", "data.hold_out=4", "data.workers=0", "run.steps=2", "run.validate_every=2",
    "run.save_every=2", "run.average=1", "run.threads=1", "run.device=cpu", "optimiser.lr=1e-12",
]  # fmt: skip
SEVERAL = [(14, 14), (20, 14), (9, 17)]  # width x height


def photographs(folder: Path, sizes: list[tuple[int, int]] = SEVERAL, *, n: int = 10) -> Path:
    """Dark and bright ones, of these sizes in turn."""
    draw = np.random.default_rng(0)
    for label, low in (("dark", 0), ("bright", 150)):
        place = folder / label
        place.mkdir(parents=True)
        for number in range(n):
            width, height = sizes[number % len(sizes)]
            array = draw.integers(low, low + 100, (height, width, 3), dtype=np.uint8)
            pillow.fromarray(array).save(place / f"{number}.png")
    return folder


def learn(folder: Path, images: Path, *overrides: str, **options: object) -> Run:
    return train(folder=folder, images=images, overrides=[*QUICK, *overrides], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", ["masked_patches", "shuffled_patches"])
def test_what_was_learned_without_labels_goes_on_with_them(task: str, tmp_path: Path) -> None:
    """The command that such a run names at its end."""
    case, images = CASES[task], write_images(tmp_path)
    train(folder=tmp_path / "first", family="vit", images=images, overrides=case.overrides)
    learn(tmp_path / "run", images, start_from=tmp_path / "first")
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("first/best", "run/last"))
    body = [name for name in b if not name.startswith("head.")]
    assert body and all(torch.allclose(a[name], b[name], atol=1e-6) for name in body)
    config = load_model(tmp_path / "run" / "last").model.config
    assert (config.head, config.labels, config.image_size, config.n_channels) == ("classify", ("0", "1"), 8, 1)
    learn(tmp_path / "run", images, "run.steps=3", resume=True)  # what is written down is read again


def test_the_model_to_start_from_says_the_size(tmp_path: Path) -> None:
    """Image files are brought to it, and to its channels, as `classify` brings them."""
    start = vit_folder(tmp_path / "start", n_channels=1, mean=(0.4,), resize="bicubic", exclusive=False)
    learn(tmp_path / "run", photographs(tmp_path / "photos"), start_from=start)
    config = load_model(tmp_path / "run" / "last").model.config
    assert (config.image_size, config.n_channels, config.mean) == (12, 1, (0.4,))
    assert config.labels == ("bright", "dark") and config.exclusive
    with pytest.raises(UserError, match=r"takes pictures of 12 x 12 pixels, and data\.image_size = 16 was asked for"):
        learn(tmp_path / "other", tmp_path / "photos", "data.image_size=16", start_from=start)


def test_arrays_of_another_size_are_refused(tmp_path: Path) -> None:
    start = vit_folder(tmp_path / "start", n_channels=1)
    with pytest.raises(UserError, match=r"images of 8 x 8 pixels.*wanted are 12 x 12 pixels.*resize them first"):
        learn(tmp_path / "run", write_images(tmp_path), start_from=start)
    start = vit_folder(tmp_path / "coloured", image_size=8)
    with pytest.raises(UserError, match=r"channels: 1; wanted are 8 x 8 pixels, channels: 3"):
        learn(tmp_path / "run", write_images(tmp_path), start_from=start)
