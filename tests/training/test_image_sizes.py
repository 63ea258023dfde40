"""The size of images: that of the model to start from, of data.image_size, or of the images."""

import shutil
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from encoder_models import vit_folder
from heedful.data import LoaderState
from heedful.decoding.encoder_inputs import image_tensor
from heedful.decoding.hf_pipelines import pipeline
from heedful.errors import UserError
from heedful.models.model_io import load_model
from heedful.models.vit import Vit
from heedful.training import Files
from heedful.training.distributed import World
from heedful.training.resolve_settings import resolve_settings
from heedful.training.tasks.base import Preparation
from heedful.training.tasks.images import mean_and_std
from heedful.training.tasks.registry import TASKS
from heedful.training.train import Run, train
from heedful.training.trainer import make_loader
from small_tasks import CASES, write_images

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: heedful[images]")

QUICK = [
    "data.batch_tokens=16", "data.hold_out=4", "data.workers=0", "run.steps=2", "run.validate_every=2",
    "run.save_every=2", "run.average=1", "run.threads=1", "run.device=cpu", "optimiser.lr=1e-12",
]  # fmt: skip
SMALL = ["model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.n_layers=1"]
SEVERAL = [(14, 14), (20, 14), (9, 17)]  # width x height


def photographs(folder: Path, sizes: list[tuple[int, int]] = SEVERAL, *, n: int = 10) -> Path:
    """Write dark and bright photographs, of these sizes in turn."""
    draw = np.random.default_rng(0)
    for label, low in (("dark", 0), ("bright", 150)):
        place = folder / label
        place.mkdir(parents=True)
        for number in range(n):
            width, height = sizes[number % len(sizes)]
            array = draw.integers(low, low + 100, (height, width, 3), dtype=np.uint8)
            pillow.fromarray(array).save(place / f"{number}.png")
    return folder


def learn(folder: Path, images: Path | list[Path], *overrides: str, **options: object) -> Run:
    return train(folder=folder, images=images, overrides=[*QUICK, *overrides], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", ["masked_patches", "shuffled_patches"])
def test_a_model_of_patches_learns_labels(task: str, tmp_path: Path) -> None:
    """The run prints this command at its end."""
    case, images = CASES[task], write_images(tmp_path)
    train(folder=tmp_path / "first", family="vit", images=images, overrides=case.overrides)
    learn(tmp_path / "run", images, init_from=tmp_path / "first")
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("first/best", "run/last"))
    body = [name for name in b if not name.startswith("head.")]
    assert body and all(torch.allclose(a[name], b[name], atol=1e-6) for name in body)
    config = load_model(tmp_path / "run" / "last").model.config
    assert (config.head, config.labels, config.image_size, config.n_channels) == ("classify", ("0", "1"), 8, 1)
    learn(tmp_path / "run", images, "run.steps=3", resume=True)  # what is written down is read again


@pytest.mark.parametrize("size", [32, 96])
@pytest.mark.parametrize("task", ["masked_patches", "shuffled_patches"])
def test_a_batch_of_patches_has_several_images(task: str, size: int, tmp_path: Path) -> None:
    """Its size is counted in patches, not in images."""
    pixels = np.random.default_rng(0).integers(0, 256, (80, size, size), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=pixels, y=np.arange(80) % 2)
    files = Files.of(tmp_path / "a.npz", (), None, None, None, "images")
    settings = resolve_settings(files, "vit", None, [f"task={task}"]).settings
    TASKS[task].prepare(Preparation(tmp_path / "run", files, settings, None, lambda text: None))
    prepared_task = TASKS[task].assemble(TASKS[task].reopen(tmp_path / "run", settings), settings)
    world, state = World(0, 1, torch.device("cpu")), LoaderState(epoch=0, position=0, seed=settings.run.seed)
    loader = make_loader(prepared_task, settings, world, state)
    assert max(len(next(loader)) for _ in range(3)) > 6


def test_images_in_one_folder_are_learned_without_labels(tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos", sizes=[(8, 8)]) / "dark"
    train(folder=tmp_path / "patches", family="vit", images=photos, overrides=CASES["masked_patches"].overrides)
    with pytest.raises(UserError, match=r"no labels, or all the same one.*task=masked_patches"):
        learn(tmp_path / "run", photos, family="vit")


def test_the_model_to_start_from_determines_the_image_size(tmp_path: Path) -> None:
    """Image files are resized and converted to its channels, as in `classify`."""
    start = vit_folder(tmp_path / "start", n_channels=1, mean=(0.4,), resize="bicubic", multi_label=True)
    learn(tmp_path / "run", photographs(tmp_path / "photos"), init_from=start)
    config = load_model(tmp_path / "run" / "last").model.config
    assert (config.image_size, config.n_channels, config.mean) == (12, 1, (0.4,))
    assert config.labels == ("bright", "dark") and not config.multi_label
    with pytest.raises(UserError, match=r"takes images of 12 x 12 pixels, and data\.image_size = 16 was asked for"):
        learn(tmp_path / "other", tmp_path / "photos", "data.image_size=16", init_from=start)


def test_arrays_of_another_size_are_refused(tmp_path: Path) -> None:
    start = vit_folder(tmp_path / "start", n_channels=1)
    with pytest.raises(UserError, match=r"images of 8 x 8 pixels.*expected 12 x 12 pixels.*resize them first"):
        learn(tmp_path / "run", write_images(tmp_path), init_from=start)
    start = vit_folder(tmp_path / "coloured", image_size=8)
    with pytest.raises(UserError, match=r"channels: 1; expected 8 x 8 pixels, channels: 3"):
        learn(tmp_path / "run", write_images(tmp_path), init_from=start)


def test_photographs_of_several_sizes_are_resized_to_one(tmp_path: Path) -> None:
    """Training and `classify` stretch an image to a square in the same way."""
    photos = photographs(tmp_path / "photos")
    with pytest.raises(UserError, match=r"several sizes.*--set data\.image_size=32"):
        learn(tmp_path / "run", photos, *SMALL, family="vit")
    learn(tmp_path / "run", photos, *SMALL, "data.image_size=8", "data.shift=0", family="vit")
    loaded = load_model(tmp_path / "run" / "last")
    assert isinstance(loaded.model, Vit) and loaded.model.config.image_size == 8
    learned = np.load(tmp_path / "run" / "data" / "images" / "pixels.npy")
    mean, std = (np.array(values)[:, None, None] for values in (loaded.model.config.mean, loaded.model.config.std))
    seen = image_tensor(loaded.model, sorted(photos.rglob("*.png"))).numpy()
    rounded = {np.rint((image * std + mean) * 255).astype(np.uint8).tobytes() for image in seen}
    assert all(image.tobytes() in rounded for image in learned)
    answer = pipeline("image-classification", model=str(tmp_path / "run"))(str(photos / "dark" / "1.png"))
    assert {row["label"] for row in answer} == {"dark", "bright"}
    learn(tmp_path / "run", photos, "run.steps=3", resume=True)  # and they are known again


def test_a_label_without_images_is_reported(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", [(8, 8)]).joinpath("grey").mkdir()
    with pytest.warns(UserWarning, match="no training image has the label 'grey'"):
        learn(tmp_path / "run", tmp_path / "photos", *SMALL, "model.patch_size=4", family="vit")


def test_oblong_images_need_image_size(tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos", [(20, 14)])
    with pytest.raises(UserError, match=r"20 x 14 pixels, and only squares.*--set data\.image_size=32"):
        learn(tmp_path / "run", photos, *SMALL, family="vit")
    learn(tmp_path / "run", photos, *SMALL, "data.image_size=32", family="vit")  # as typed
    assert load_model(tmp_path / "run" / "last").model.config.image_size == 32


def test_mean_and_std_need_no_copy_of_the_pixels() -> None:
    """Thousands of photographs as float64 would fill the memory."""
    pixels = np.random.default_rng(0).integers(0, 200, (300, 3, 48, 48), dtype=np.uint8)
    pixels[:, 1] //= 3
    tracemalloc.start()
    mean, std = mean_and_std(pixels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < pixels.nbytes
    np.testing.assert_allclose(mean, (pixels / 255).mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, (pixels / 255).std(axis=(0, 2, 3)), rtol=1e-12)


def test_validation_images_have_the_size_of_training(tmp_path: Path) -> None:
    photos, valid = photographs(tmp_path / "photos", [(12, 12)]), photographs(tmp_path / "valid", [(30, 9)])
    learn(tmp_path / "run", photos, *SMALL, family="vit", valid=valid)
    assert np.load(tmp_path / "run" / "data" / "images" / "valid_pixels.npy").shape == (20, 3, 12, 12)


def test_validation_may_lack_a_label_but_not_add_one(tmp_path: Path) -> None:
    photos, valid = photographs(tmp_path / "photos", [(12, 12)]), photographs(tmp_path / "valid", [(12, 12)], n=3)
    shutil.rmtree(valid / "bright")
    learn(tmp_path / "run", photos, *SMALL, family="vit", valid=valid)
    names = load_model(tmp_path / "run" / "last").model.config.labels
    targets = np.load(tmp_path / "run" / "data" / "images" / "valid_targets.npy")
    assert [names[target] for target in targets] == ["dark"] * 3
    (valid / "dark").rename(valid / "drak")
    with pytest.raises(UserError, match=r"valid: the label 'drak' is not among those of training; did you mean 'dark'"):
        learn(tmp_path / "other", photos, *SMALL, family="vit", valid=valid)


@pytest.mark.parametrize("task", ["masked_patches", "shuffled_patches"])
def test_tasks_on_patches_ignore_labels(task: str, tmp_path: Path) -> None:
    photos = [photographs(tmp_path / name, [(8, 8)]) for name in ("photos", "more", "valid")]
    (photos[0] / "empty").mkdir()
    (photos[1] / "dark").rename(photos[1] / "drak")
    (photos[2] / "dark").rename(photos[2] / "grey")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        patches = (*SMALL, "model.patch_size=4", f"task={task}")
        learn(tmp_path / "run", photos[:2], *patches, family="vit", valid=photos[2])
    pictures = tmp_path / "run" / "data" / "images"
    assert [len(np.load(pictures / f"{part}pixels.npy")) for part in ("", "valid_")] == [40, 20]
    with pytest.raises(UserError, match=r"more: another size than photos"):
        learn(
            tmp_path / "other",
            [photos[0], photographs(tmp_path / "large" / "more", [(16, 16)])],
            *patches,
            family="vit",
        )


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.image_size=8", r"'model\.image_size' comes from the images; set data\.image_size instead"),
        ("data.image_size=0", "'image_size' must be at least 1"),
        ("data.image_size=9", "patch_size = 4 does not divide image_size = 9"),
    ],
)
def test_an_impossible_size_is_rejected_before_the_images_are_read(setting: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        learn(tmp_path / "run", tmp_path / "none", setting, family="vit")


def test_the_card_counts_what_was_learned_from_and_what_was_held_out(tmp_path: Path) -> None:
    first, second = (photographs(tmp_path / name, [(12, 12)], n=n) for name, n in (("first", 10), ("second", 20)))
    learn(tmp_path / "run", [first, second], *SMALL, "data.hold_out=6", family="vit")
    card = (tmp_path / "run" / "last" / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in card.splitlines() if line.startswith(("| training", "| validation"))]
    counts = [int(row[3]) for row in rows]
    assert len(counts) == 3 and counts[0] < 20 and counts[1] < 40 and counts[2] == 6
    assert sum(counts) == 60
