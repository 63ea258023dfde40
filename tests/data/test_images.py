"""Images from folders, arrays and tables; normalisation; random changes that depend on a generator alone."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data import Images, flip, normalised, open_images, read_image, shift, splits_of
from heedful.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "images"
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: heedful[images]")


def picture(n: int, *, size: int = 6, n_channels: int = 3) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (size, size, n_channels), dtype=np.uint8)


def folder_of(folder: Path, *, split: str = "", n_channels: int = 3, suffix: str = ".png") -> Path:
    for number, (label, name) in enumerate([("cat", "b"), ("cat", "a"), ("dog", "c")]):
        place = folder / split / label
        place.mkdir(parents=True, exist_ok=True)
        array = picture(number, n_channels=n_channels)
        pillow.fromarray(array.squeeze()).save(place / f"{name}{suffix}")
    return folder


def test_a_folder_with_a_folder_for_each_label(tmp_path: Path) -> None:
    images = open_images(folder_of(tmp_path / "pets"))
    assert (images.labels, images.targets.tolist(), images.name) == (("cat", "dog"), [0, 0, 1], "pets")
    assert images.pixels.shape == (3, 3, 6, 6) and images.pixels.dtype == np.uint8
    assert np.array_equal(images.pixels[0], picture(1).transpose(2, 0, 1))  # sorted by name: a before b
    assert splits_of(tmp_path / "pets") == ()


def test_images_without_labels(tmp_path: Path) -> None:
    flat = folder_of(tmp_path / "pets") / "cat"
    np.savez(tmp_path / "pets.npz", x=np.stack([picture(1), picture(2)]))
    for images in (open_images(flat), open_images(tmp_path / "pets.npz")):
        assert len(images.labels) == 1 and images.targets.tolist() == [0, 0]
        assert images.pixels.shape == (2, 3, 6, 6)


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    assert open_images(folder_of(tmp_path, n_channels=1)).pixels.shape == (3, 1, 6, 6)


def test_splits_of_a_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, split="train")
    folder_of(tmp_path, split="valid")
    assert splits_of(tmp_path) == ("train", "test")
    assert len(open_images(tmp_path, split="train")) == len(open_images(tmp_path, split="test")) == 3


def test_images_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    folder_of(tmp_path)
    pillow.fromarray(picture(9, size=8)).save(tmp_path / "dog" / "d.png")
    with pytest.raises(UserError, match=r"d\.png: the images have several sizes"):
        open_images(tmp_path)
    assert open_images(tmp_path, size=5).pixels.shape == (4, 3, 5, 5)


def test_an_array_file(tmp_path: Path) -> None:
    train, test = np.stack([picture(n) for n in range(5)]), np.stack([picture(9)])
    names = np.array(["cat", "dog"])
    np.savez(tmp_path / "a.npz", x_train=train, y_train=[0, 1, 1, 0, 0], x_test=test, y_test=[1], classes=names)
    images = open_images(tmp_path / "a.npz", split="train")
    assert images.labels == ("cat", "dog") and images.targets.tolist() == [0, 1, 1, 0, 0]
    assert np.array_equal(images.pixels, train.transpose(0, 3, 1, 2))
    assert len(open_images(tmp_path / "a.npz", split="test")) == 1
    assert len(open_images(tmp_path / "a.npz")) == 5
    assert splits_of(tmp_path / "a.npz") == ("train", "test")


@pytest.mark.parametrize(("x", "y"), [("x", "y"), ("images", "labels")])
def test_the_splits_of_an_array_file_have_several_names(x: str, y: str, tmp_path: Path) -> None:
    """Otherwise a run with this file for training and validation would validate on its training images."""
    pixels = np.stack([picture(n) for n in range(5)])
    arrays = {f"{x}_train": pixels[:3], f"{y}_train": [0, 1, 1], f"{x}_val": pixels[3:], f"{y}_val": [0, 1]}
    np.savez(tmp_path / "a.npz", **arrays)
    assert splits_of(tmp_path / "a.npz") == ("train", "test")
    assert [len(open_images(tmp_path / "a.npz", split=split)) for split in ("train", "test")] == [3, 2]


@pytest.mark.parametrize("where", ["first", "last", "named"])
def test_a_table(where: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 9))
    pixels[:, [0, -1]] = 0  # corners are black
    labels = np.array([2, 0, 1, 2])[:, None]
    rows = np.hstack([pixels, labels] if where == "last" else [labels, pixels])
    text = "\n".join(",".join(map(str, row)) for row in rows) + "\n"
    if where == "named":
        text = ",".join(["label", *(f"pixel{n}" for n in range(9))]) + "\n" + text
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(text.encode()))
    images = open_images(tmp_path / "digits.csv.gz", label=None if where == "named" else where)
    assert images.targets.tolist() == [2, 0, 1, 2] and images.labels == ("0", "1", "2")
    assert np.array_equal(images.pixels.reshape(4, 9), pixels)


def test_the_label_of_a_table_without_a_heading_is_never_guessed(tmp_path: Path) -> None:
    (tmp_path / "digits.csv").write_text("1,0,9,9,0\n2,0,8,8,0\n")
    with pytest.raises(UserError, match=r"digits\.csv: the table has no heading; .*data\.label=first"):
        open_images(tmp_path / "digits.csv")
    assert open_images(tmp_path / "digits.csv", label="first").targets.tolist() == [1, 2]


def test_mnist_and_cifar_are_read() -> None:
    if not SHARED.is_dir():
        pytest.skip("the folder shared/data/images is not there")
    digits = open_images(SHARED / "mnist_5k.csv.gz", label="last")
    assert digits.pixels.shape == (5000, 1, 28, 28)
    assert np.bincount(digits.targets).tolist() == [500] * 10
    cifar = SHARED / "cifar10_2000train_500test.npz"
    assert open_images(cifar, split="train").pixels.shape == (2000, 3, 32, 32)
    assert open_images(cifar, split="test").labels[3] == "cat"


def images(n: int = 40) -> Images:
    pixels = np.random.default_rng(1).integers(0, 256, (n, 3, 6, 6), dtype=np.uint8)
    return Images(pixels, np.arange(n) % 4, ("a", "b", "c", "d"), name="made up")


def test_a_share_of_each_label_is_held_out() -> None:
    rest, aside = images().hold_out(0.3, seed=5)
    assert np.bincount(aside.targets).tolist() == [3] * 4 and len(rest) == 28
    together = np.concatenate([rest.pixels, aside.pixels])
    assert sorted(map(bytes, together)) == sorted(map(bytes, images().pixels))
    assert images().hold_out(0.3, seed=5)[1].fingerprint == aside.fingerprint
    assert images().hold_out(0.3, seed=6)[1].fingerprint != aside.fingerprint


def test_of_small_labels_a_share_of_all_images_is_held_out() -> None:
    """A sixtieth of the 20 images of a label rounds to 0: so nothing was held out of 60,000 images."""
    many = Images(np.zeros((600, 1, 2, 2), np.uint8), np.arange(600) % 30, tuple(map(str, range(30))), name="made up")
    rest, aside = many.hold_out(1 / 60, seed=5)
    assert (len(rest), len(aside)) == (590, 10)
    assert many.hold_out(1 / 60, seed=5)[1].fingerprint == aside.fingerprint
    assert many.hold_out(1 / 60, seed=6)[1].fingerprint != aside.fingerprint
    assert len(many.hold_out(1 / 30, seed=5)[1]) == 30


def test_the_fingerprint_depends_on_every_pixel_and_label() -> None:
    changed = images().pixels.copy()
    changed[3, 1, 2, 2] ^= 1
    fingerprints = {images().fingerprint, Images(changed, images().targets, images().labels, name="x").fingerprint}
    fingerprints.add(Images(images().pixels, images().targets[::-1].copy(), images().labels, name="x").fingerprint)
    assert len(fingerprints) == 3


def test_normalisation() -> None:
    pixels = np.array([[[[0, 255]], [[51, 102]], [[0, 0]]]], np.uint8)
    tensor = normalised(pixels, (0.0, 0.5, 0.1), (1.0, 0.5, 0.2))
    assert torch.allclose(tensor.flatten(), torch.tensor([0.0, 1.0, -0.6, -0.2, -0.5, -0.5]))
    assert tensor.dtype == torch.float32


def test_random_changes_depend_on_the_generator_alone() -> None:
    pixels = images().pixels
    for change in (flip, lambda p, g: shift(p, g, by=2)):
        one, same = (change(pixels, np.random.default_rng(3)) for _ in range(2))
        assert np.array_equal(one, same) and one.dtype == np.uint8 and one.shape == pixels.shape
        assert not np.array_equal(one, change(pixels, np.random.default_rng(4)))


def test_a_flip_is_the_image_or_its_mirror() -> None:
    pixels = images().pixels
    flipped = flip(pixels, np.random.default_rng(0))
    kinds = [np.array_equal(a, b) for a, b in zip(flipped, pixels, strict=True)]
    mirrors = [np.array_equal(a, b[..., ::-1]) for a, b in zip(flipped, pixels, strict=True)]
    assert all(a != b for a, b in zip(kinds, mirrors, strict=True))
    assert 5 < sum(kinds) < 35


def test_a_shift_moves_all_channels_equally_and_keeps_the_rest() -> None:
    pixels = images().pixels
    moved = shift(pixels, np.random.default_rng(0), by=1)
    places = []
    for before, after in zip(pixels, moved, strict=True):
        padded = np.pad(before, ((0, 0), (1, 1), (1, 1)))
        windows = {(y, x): padded[:, y : y + 6, x : x + 6] for y in range(3) for x in range(3)}
        [place] = [place for place, window in windows.items() if np.array_equal(after, window)]
        places.append(place)
    assert {y for y, _ in places} == {x for _, x in places} == {0, 1, 2}
    assert len(set(places)) > 6  # the two directions are drawn independently
    assert np.array_equal(shift(pixels, np.random.default_rng(0), by=0), pixels)


def test_one_image_file(tmp_path: Path) -> None:
    pillow.fromarray(picture(0)).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png", n_channels=3), picture(0).transpose(2, 0, 1))
    assert read_image(tmp_path / "a.png", n_channels=1, size=4).shape == (1, 4, 4)


def test_of_sixteen_bits_of_grey_the_upper_eight_are_read(tmp_path: Path) -> None:
    """Pillow's own conversion clips at 255: all but the darkest pixels would be white."""
    deep = np.linspace(0, 65535, 36).reshape(6, 6).astype(np.uint16)
    pillow.fromarray(deep).save(tmp_path / "deep.png")
    for n_channels in (1, 3):
        pixels = read_image(tmp_path / "deep.png", n_channels=n_channels)
        assert all(np.array_equal(channel, deep >> 8) for channel in pixels)


def test_an_image_is_rotated_according_to_its_exif_data(tmp_path: Path) -> None:
    image = pillow.fromarray(picture(0))
    exif = image.getexif()
    exif[0x0112] = 6  # rotate by 90 degrees, clockwise
    image.save(tmp_path / "a.png", exif=exif)
    expected = np.rot90(picture(0), -1).transpose(2, 0, 1)
    assert np.array_equal(read_image(tmp_path / "a.png", n_channels=3), expected)
    assert np.array_equal(read_image(pillow.open(tmp_path / "a.png"), n_channels=3), expected)


def test_images_of_other_kinds_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folder_of(tmp_path)
    for name in ("cat/x.gif", "dog/y.TIFF", "dog/notes.txt"):
        pillow.fromarray(picture(7)).save(tmp_path / name, "GIF")
    with pytest.warns(UserWarning, match=r"2 images .* left out .*cat/x\.gif, dog/y\.TIFF") as warnings:
        assert len(open_images(tmp_path)) == 3
    assert len(warnings) == 1


def hostile(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    made = {}
    (tmp_path / "empty").mkdir()
    made["an empty folder"] = (tmp_path / "empty", "found no image")
    (tmp_path / "noise" / "a").mkdir(parents=True)
    (tmp_path / "noise" / "a" / "x.png").write_bytes(b"\x89PNG nothing")
    made["no image"] = (tmp_path / "noise", "not a readable image")
    (tmp_path / "gif" / "a").mkdir(parents=True)
    pillow.fromarray(picture(1)).save(tmp_path / "gif" / "a" / "x.png", "GIF")
    made["another format"] = (tmp_path / "gif", "not a readable image: PNG, JPEG, BMP and WEBP are read")
    (tmp_path / "broken.npz").write_bytes(b"PK nothing")
    made["no archive"] = (tmp_path / "broken.npz", "not a readable .npz")
    np.savez(tmp_path / "names.npz", pictures=np.zeros((1, 2, 2), np.uint8))
    made["other names"] = (tmp_path / "names.npz", "expected the arrays")
    np.savez(tmp_path / "floats.npz", x=np.zeros((1, 2, 2)), y=[0])
    made["no bytes"] = (tmp_path / "floats.npz", "must be bytes")
    np.savez(tmp_path / "few.npz", x=np.zeros((2, 2, 2), np.uint8), y=[0])
    made["too few labels"] = (tmp_path / "few.npz", "a whole number for each")
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "pickle.npz", x=objects, y=[0])
    made["a pickle"] = (tmp_path / "pickle.npz", "cannot be read")
    np.savez_compressed(tmp_path / "damaged.npz", x=images(60).pixels[:, 0] % 4, y=[0] * 60)
    content = bytearray((tmp_path / "damaged.npz").read_bytes())
    content[200:260] = bytes(60)
    (tmp_path / "damaged.npz").write_bytes(content)
    made["damaged"] = (tmp_path / "damaged.npz", "'x' cannot be read")
    (tmp_path / "text.csv").write_text("a,b\nc,d\n")
    made["words"] = (tmp_path / "text.csv", "label|whole numbers")
    (tmp_path / "odd.csv").write_text("a,b,label\n1,2,3\n")
    made["no square"] = (tmp_path / "odd.csv", "no square")
    (tmp_path / "bright.csv").write_text("a,b,c,d,label\n1,2,3,999,0\n")
    made["too bright"] = (tmp_path / "bright.csv", "between 0 and 255")
    (tmp_path / "a.txt").write_text("x")
    made["another kind"] = (tmp_path / "a.txt", "images are read from")
    made["nothing"] = (tmp_path / "nowhere", "no such file")
    return made


def test_errors_name_the_file_that_cannot_be_read(tmp_path: Path) -> None:
    for case, (path, words) in hostile(tmp_path).items():
        with pytest.raises(UserError, match=words):
            open_images(path)
            pytest.fail(case)
    with pytest.raises(UserError, match="no split"):
        open_images(tmp_path / "odd.csv", split="test")
    for name, words in (("", "the name of an image file is missing"), (str(tmp_path), "a folder, where an image file")):
        with pytest.raises(UserError, match=words):
            read_image(name, n_channels=3)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.data.images.MAX_BYTES", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((100, 10, 10), np.uint8), y=np.zeros(100, int))
    with pytest.raises(UserError, match="when unpacked"):
        open_images(tmp_path / "bomb.npz")
    monkeypatch.setattr("heedful.data.images.MAX_IMAGE", 10)
    with pytest.raises(UserError, match="pixels; at most"):
        open_images(folder_of(tmp_path / "pets"))


@pytest.mark.parametrize("n_channels", [1, 3])
def test_pixels_are_writable(tmp_path: Path, n_channels: int) -> None:
    """Arrays that share Pillow's memory are read-only, and torch warns about them."""
    pillow.new("L", (8, 8), 100).save(tmp_path / "grey.png")
    pixels = read_image(tmp_path / "grey.png", n_channels=n_channels)
    pixels[:, 0, 0] = 7
    assert pixels.shape == (n_channels, 8, 8)
