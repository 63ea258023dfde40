"""Images with labels: read into one array, changed at random, and made into batches.

`open_images` reads a folder with a subfolder for each label, an .npz file of arrays, or a table of pixels. `normalised`
converts bytes into the numbers that a model takes. `flip` and `shift` change a batch at random, as functions of a
generator, so that a resumed run makes the same changes. `ImageDataset` makes the batches.
"""

import contextlib
import hashlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.data.collate import ImageBatch
from heedful.data.datasets import BatchDataset
from heedful.data.lines import open_bytes, plain_name
from heedful.data.seeding import IntArray, rng
from heedful.errors import MissingExtra, Notice, UserError, did_you_mean, warn

if TYPE_CHECKING:
    from PIL import Image

Pixels = npt.NDArray[np.uint8]  # (N, C, H, W)
Targets = npt.NDArray[np.int64]  # (N,)
Resize = Literal["bilinear", "bicubic", "nearest"]
Picture: TypeAlias = "str | Path | Image.Image"  # the name of a file, or an image opened with Pillow

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
UNREAD = (".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".ico", ".ppm", ".pgm")
MAX_BYTES = 8 << 30  # of all pixels: a damaged or hostile file must not be unpacked for hours
MAX_IMAGE = 1 << 27  # pixels of one image file
SPLITS = {"train": ("train",), "test": ("test", "valid", "validation", "val", "dev")}

Split = Literal["train", "test"]
LabelColumn = Literal["first", "last"]
LabelFn = Callable[[int, np.random.Generator], IntArray]  # (number of an image, generator) -> its label or labels


@dataclass(frozen=True)
class Images:
    """N images of one size, with the number of each image's label."""

    pixels: Pixels  # (N, C, H, W)
    targets: Targets  # (N,)
    labels: tuple[str, ...]
    name: str

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def fingerprint(self) -> str:
        """A SHA-256 over all pixels and labels."""
        parts = (
            str(self.pixels.shape).encode(),
            self.pixels.tobytes(),
            self.targets.tobytes(),
            repr(self.labels).encode(),
        )
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    def take(self, indices: npt.NDArray[np.int64]) -> "Images":
        """Select images by their numbers."""
        return replace(self, pixels=self.pixels[indices], targets=self.targets[indices])

    def hold_out(self, share: float, *, seed: int) -> tuple["Images", "Images"]:
        """Divide the images into (the rest, a share of each label drawn at random)."""
        chosen = self.hold_out_mask(share, seed=seed)
        return self.take(np.flatnonzero(~chosen)), self.take(np.flatnonzero(chosen))

    def hold_out_mask(self, share: float, *, seed: int) -> npt.NDArray[np.bool_]:
        """Return True for a share of each label or, if labels have too few images for that, for that share of all."""
        chosen = np.zeros(len(self), bool)
        generator = np.random.default_rng(seed)
        for target in np.unique(self.targets):
            places = generator.permutation(np.flatnonzero(self.targets == target))
            chosen[places[: round(share * len(places))]] = True
        n_missing = round(share * len(self)) - int(chosen.sum())
        # With many small labels each share rounds to zero. A few images that are missing because of ordinary rounding
        # are not added, so that older divisions, and what was measured with them, stay as they are.
        if n_missing > chosen.sum():
            chosen[generator.permutation(np.flatnonzero(~chosen))[:n_missing]] = True
        return chosen


def open_images(
    path: str | Path,
    *,
    split: Split | None = None,
    size: int | None = None,
    n_channels: int | None = None,
    resize: Resize = "bilinear",
    label: LabelColumn | None = None,
) -> Images:
    """Read all images of a folder or file, or one split: `x_train` or `x_test` of an .npz, DIR/train or DIR/test.

    Image files are resized to `size` pixels in height and width, stretched if they are oblong; without `size` they must
    all have one size. They are converted to `n_channels`: 1 is grey, 3 is colour, and the default is colour if any of
    them has it. Arrays and tables are never converted: if they have another size, a UserError is raised. `label` is the
    label's column in a table of pixels (.csv, .tsv); it is needed if the table has no heading.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    if path.is_dir():
        return _read_folder(path, split, size, n_channels, resize)
    suffix = Path(plain_name(path)).suffix
    if suffix == ".npz":
        images = _read_npz(path, split)
    elif suffix in (".csv", ".tsv"):
        if split == "test":
            raise UserError(f"{path}: a table has no splits; name another file to test with")
        images = _read_table(path, "," if suffix == ".csv" else "\t", label)
    else:
        raise UserError(
            f"{path}: images are read from a folder with a folder for each label, from an .npz or from a .csv"
        )
    _check_arrays(path, images.pixels, size, n_channels)
    return images


def open_training_images(
    path: str,
    *,
    size: int | None = None,
    n_channels: int | None = None,
    resize: Resize = "bilinear",
    label: LabelColumn | None = None,
) -> Images:
    """Open the training split, or all images if there are no splits; raise a UserError if they are not square.

    The arguments are those of `open_images`.
    """
    split: Split | None = "train" if splits_of(path) else None
    images = open_images(path, split=split, size=size, n_channels=n_channels, resize=resize, label=label)
    height, width = images.pixels.shape[2:]
    if height != width:
        raise UserError(
            f"{path}: images of {width} x {height} pixels, and only squares can be learned from. Image files are "
            "resized to a square by --set data.image_size=32 (or another size), which stretches them; arrays are not"
        )
    return images


def open_validation_images(
    path: str, *, like: Images, resize: Resize = "bilinear", label: LabelColumn | None = None
) -> Images:
    """Open the test split, or all images if there is none, in the size and with the channels of `like`."""
    split: Split | None = "test" if "test" in splits_of(path) else None
    n_channels, size = like.pixels.shape[1:3]
    return open_images(path, split=split, size=size, n_channels=n_channels, resize=resize, label=label)


def splits_of(path: str | Path) -> tuple[Split, ...]:
    """Find the splits of a folder or file; an empty tuple if it is not split."""
    path = Path(path)
    if path.is_dir():
        names = {entry.name for entry in path.iterdir() if entry.is_dir()}
    elif path.suffix == ".npz":
        with _open_npz(path) as archive:
            arrays = [entry.removesuffix(".npy").partition("_") for entry in archive.namelist()]
        names = {split for what, _, split in arrays if what in ("x", "images")}
    else:
        names = set()
    if not names & set(SPLITS["train"]):
        return ()
    return tuple(split for split, known in SPLITS.items() if names & set(known))  # type: ignore[misc]


def normalised(pixels: Pixels | Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Convert bytes (B, C, H, W) to float32: (pixel / 255 - mean) / std, with a mean and a std for each channel."""
    tensor = torch.as_tensor(pixels).float() / 255
    return (tensor - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


def flip(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Mirror each image (B, C, H, W) from left to right with probability 1/2."""
    flipped = generator.random(len(pixels)) < 0.5
    return np.where(flipped[:, None, None, None], pixels[..., ::-1], pixels)


def shift(pixels: Pixels, generator: np.random.Generator, *, by: int) -> Pixels:
    """Move each image (B, C, H, W) by up to `by` pixels vertically and horizontally, filling the edges with black."""
    n_images, _, height, width = pixels.shape
    moves = generator.integers(-by, by, size=(n_images, 2), endpoint=True)
    padded = np.pad(pixels, ((0, 0), (0, 0), (by, by), (by, by)))
    rows = (np.arange(height) + by - moves[:, :1])[:, None, :, None]
    columns = (np.arange(width) + by - moves[:, 1:])[:, None, None, :]
    numbers, channels = np.arange(n_images)[:, None, None, None], np.arange(pixels.shape[1])[:, None, None]
    moved: Pixels = padded[numbers, channels, rows, columns]
    return moved


def read_image(path: "Picture", *, n_channels: int, size: int | None = None, resize: Resize = "bilinear") -> Pixels:
    """Read one image as (C, H, W), from a file or from an image of Pillow's."""
    _need_pillow()
    from PIL import Image, ImageOps

    methods = {
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "nearest": Image.Resampling.NEAREST,
    }
    image = path if isinstance(path, Image.Image) else _open_image(path)
    with contextlib.suppress(SyntaxError, ValueError, struct.error):  # damaged EXIF data is ignored
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow would clip at 255 and make it white
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if n_channels not in (1, 3):
        raise UserError(f"{path}: image files have 1 or 3 channels; {n_channels} cannot be read")
    image = image.convert("L" if n_channels == 1 else "RGB")
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), methods[resize])
    array = np.array(image, np.uint8)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _check_arrays(path: Path, pixels: Pixels, size: int | None, n_channels: int | None) -> None:
    """Raise a UserError if arrays have another size or number of channels: only image files are converted."""
    _, channels, height, width = pixels.shape
    if (size or height, size or width, n_channels or channels) != (height, width, channels):
        expected = [] if size is None else [f"{size} x {size} pixels"]
        expected += [] if n_channels is None else [f"channels: {n_channels}"]
        raise UserError(
            f"{path}: images of {width} x {height} pixels, channels: {channels}; expected {', '.join(expected)}. "
            "Arrays are not resized: resize them first, or give a folder of image files"
        )


def _read_folder(path: Path, split: Split | None, size: int | None, n_channels: int | None, resize: Resize) -> Images:
    folder = path
    if split is not None:
        folders = [path / name for name in SPLITS[split] if (path / name).is_dir()]
        if not folders:
            raise UserError(f"{path}: has no folder for '{split}'; expected one of: {', '.join(SPLITS[split])}")
        folder = folders[0]
    labels = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not labels and _image_files(folder, SUFFIXES):  # images without labels: "." is the folder itself
        labels = ["."]
    files = [(number, file) for number, label in enumerate(labels) for file in _image_files(folder / label, SUFFIXES)]
    unread = [file for label in labels for file in _image_files(folder / label, UNREAD)]
    if unread:
        names = ", ".join(str(file.relative_to(folder)) for file in unread[:3])
        more = ", …" if len(unread) > 3 else ""
        kinds = ", ".join(SUFFIXES)
        left = "1 image is" if len(unread) == 1 else f"{len(unread):,} images are"
        warn(Notice(f"{folder}: {left} left out ({names}{more}), because only {kinds} are read"))
    if not files:
        raise UserError(
            f"{folder}: expected a folder for each label, with images in it ({', '.join(SUFFIXES)}); found no image"
        )
    if n_channels is None:
        n_channels = 1 if all(_open_image(file).mode in ("1", "L", "I;16") for _, file in files) else 3
    arrays = [read_image(file, n_channels=n_channels, size=size, resize=resize) for _, file in files]
    odd = next((i for i, array in enumerate(arrays) if array.shape != arrays[0].shape), None)
    if odd is not None:
        sizes = " and ".join(f"{arrays[i].shape[2]} x {arrays[i].shape[1]}" for i in (0, odd))
        raise UserError(
            f"{files[odd][1]}: the images have several sizes ({sizes}); give one size for all: `size=`, "
            "or in training for example --set data.image_size=32"
        )
    targets = np.array([number for number, _ in files], np.int64)
    return Images(np.stack(arrays), targets, tuple(labels), name=folder.name if split is None else path.name)


def _image_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in suffixes and file.is_file())


def _open_image(path: str | Path) -> "Image.Image":
    _need_pillow()
    from PIL import Image, UnidentifiedImageError

    if not isinstance(path, (str, Path)):
        raise UserError(f"an image must be the name of its file or an image of Pillow's, found {str(path)[:60]!r}")
    if str(path).lower().startswith(("http://", "https://")):
        raise UserError(f"{path}: heedful downloads no images; save the image and give the name of its file")
    if not str(path):
        raise UserError("the name of an image file is missing: it is empty")
    if not Path(path).exists():
        raise UserError(f"{path}: no such file")
    if Path(path).is_dir():
        raise UserError(f"{path}: a folder, where an image file was expected")
    try:
        image: Image.Image = Image.open(path, formats=FORMATS)
        if image.width * image.height > MAX_IMAGE:
            raise UserError(f"{path}: {image.width} x {image.height} pixels; at most {MAX_IMAGE:,} are read")
        image.load()
    except UnidentifiedImageError:
        kinds = " and ".join([", ".join(FORMATS[:-1]), FORMATS[-1]])
        raise UserError(f"{path}: not a readable image: {kinds} are read; is it one of them, and whole?") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: not a readable image: {error}") from None
    return image


def _read_npz(path: Path, split: Split | None) -> Images:
    with _open_npz(path) as archive:
        names = {entry.removesuffix(".npy") for entry in archive.namelist()}
        endings = [f"_{name}" for name in SPLITS[split]] if split else ["", "_train"]
        pairs = [(f"{x}{end}", f"{y}{end}") for end in endings for x, y in (("x", "y"), ("images", "labels"))]
        pair = next((pair for pair in pairs if set(pair) <= names), None)
        if pair is None:  # pixels without labels
            alone = next((x for x, _ in pairs if x in names), None)
            pair = None if alone is None else (alone, "")
        if pair is None:
            expected = " or ".join(f"'{x}' and '{y}'" for x, y in pairs[:2])
            raise UserError(f"{path}: expected the arrays {expected}; found {', '.join(sorted(names))}")
        pixels = _array(path, archive, pair[0])
        targets = _array(path, archive, pair[1]) if pair[1] else np.zeros(pixels.shape[:1], np.int64)
        classes = _array(path, archive, "classes") if "classes" in names else None
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4):
        raise UserError(
            f"{path}: '{pair[0]}' must be bytes (N, H, W) or (N, H, W, C), found {pixels.dtype} {pixels.shape}"
        )
    if not np.issubdtype(targets.dtype, np.integer) or targets.size != len(pixels):
        raise UserError(f"{path}: '{pair[1]}' must have a whole number for each of {len(pixels):,} images")
    images = pixels.astype(np.uint8, copy=False)
    images = images[:, None] if images.ndim == 3 else _channels_first(images)
    return _labelled(images, targets.reshape(-1).astype(np.int64), classes, path)


def _channels_first(pixels: Pixels) -> Pixels:
    last = pixels.shape[-1] in (1, 3)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if last else pixels


def _open_npz(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a readable .npz: {error}") from None
    size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_BYTES:
        raise UserError(f"{path}: {size:,} bytes when unpacked; at most {MAX_BYTES:,} are read")
    return archive


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> npt.NDArray[np.generic]:
    try:
        array: npt.NDArray[np.generic] = np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: '{name}' cannot be read: {error}") from None
    return array


def _read_table(path: Path, separator: str, label: LabelColumn | None) -> Images:
    """Read a table with a line for each image: its pixels from 0 to 255, and its label in the first or last column."""
    with open_bytes(path) as stream:
        text = stream.read(MAX_BYTES).decode("ascii", "replace")
    lines = text.splitlines()
    heading = lines[0].lower().split(separator) if lines and re.search(r"[a-zA-Z]", lines[0]) else None
    try:
        values = np.loadtxt(lines[1:] if heading else lines, np.int64, delimiter=separator, ndmin=2, comments=None)
    except ValueError as error:
        raise UserError(f"{path}: expected whole numbers, {separator!r} between them: {error}") from None
    if not values.size:
        raise UserError(f"{path}: holds no image")
    first = (label or _label_column(path, heading)) == "first"
    targets, numbers = (values[:, 0], values[:, 1:]) if first else (values[:, -1], values[:, :-1])
    n_channels, side = next(
        ((c, s) for c in (1, 3) if (s := round((numbers.shape[1] / c) ** 0.5)) ** 2 * c == numbers.shape[1]), (0, 0)
    )
    if not n_channels:
        raise UserError(f"{path}: {numbers.shape[1]} pixels in a line are no square image of 1 or 3 channels")
    if numbers.min() < 0 or numbers.max() > 255:
        raise UserError(f"{path}: pixels must lie between 0 and 255, found {numbers.min()} to {numbers.max()}")
    return _labelled(numbers.astype(np.uint8).reshape(-1, n_channels, side, side), targets, None, path)


def _label_column(path: Path, heading: list[str] | None) -> LabelColumn:
    """Find the column 'label' in the heading; UserError if there is none, because labels and pixels look alike."""
    how = "say which column is the label: --set data.label=first, or last (in Python label=)"
    if heading is None:
        raise UserError(f"{path}: the table has no heading; {how}")
    names = [name.strip(' "') for name in heading]
    if "label" not in (names[0], names[-1]):
        hint = did_you_mean("label", (names[0], names[-1]))
        raise UserError(f"{path}: neither the first nor the last column has the name 'label'{hint}; {how}")
    return "first" if names[0] == "label" else "last"


def _labelled(pixels: Pixels, targets: Targets, classes: npt.NDArray[np.generic] | None, path: Path) -> Images:
    if targets.size and targets.min() < 0:
        raise UserError(f"{path}: a label has the number {targets.min()}; labels are numbered from 0")
    n_labels = int(targets.max(initial=-1)) + 1
    if n_labels > 1_000_000:
        raise UserError(f"{path}: a label has the number {n_labels - 1:,}; at most 1,000,000 labels are read")
    if classes is None:
        labels = tuple(str(number) for number in range(n_labels))
    else:
        labels = tuple(str(name) for name in classes.reshape(-1))
    if len(labels) < n_labels:
        raise UserError(f"{path}: 'classes' has {len(labels)} names, but a label has the number {n_labels - 1}")
    return Images(pixels, targets, labels, name=Path(plain_name(path)).stem)


def _need_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtra("reading image files", "images") from None


@dataclass(frozen=True)
class ImageTransform:
    """Random changes to an image, and the mean and std with which a batch is normalised afterwards."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = False
    shift: int = 0

    def __call__(self, pixels: Pixels, generator: np.random.Generator) -> Pixels:
        """Flip and shift one image (C, H, W)."""
        changed = flip(pixels[None], generator) if self.flip else pixels[None]
        moved: Pixels = (shift(changed, generator, by=self.shift) if self.shift else changed)[0]
        return moved


class ImageDataset(BatchDataset[ImageBatch]):
    """Images for a loader. `label_fn` returns the label of an image, or `n_labels` of them, one for each patch."""

    def __init__(
        self,
        pixels: Pixels,
        label_fn: LabelFn,
        transform: ImageTransform,
        *,
        key: str,
        n_labels: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self.pixels, self.label_fn, self.transform = pixels, label_fn, transform
        self._empty = np.zeros((0, *pixels.shape[1:]), np.uint8)
        super().__init__(
            [key], [len(pixels)], target_lengths=np.full(len(pixels), n_labels, np.uint32), pin_memory=pin_memory
        )

    def make_batch(self, chosen: IntArray, indices: IntArray, rows: IntArray, seed: int) -> ImageBatch:
        generators = [rng(seed, int(row)) for row in rows]
        changed = [self.transform(self.pixels[i], generator) for i, generator in zip(chosen, generators, strict=True)]
        labels = [self.label_fn(int(i), generator) for i, generator in zip(chosen, generators, strict=True)]
        return ImageBatch(
            pixels=normalised(np.stack(changed) if changed else self._empty, self.transform.mean, self.transform.std),
            labels=torch.from_numpy(np.array(labels, np.int64)),
            indices=torch.from_numpy(chosen),
        )
