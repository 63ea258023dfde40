"""Tasks on images (ViT): their label, the pixels of masked patches, the order of shuffled patches.

run/data/images/  pixels.npy  targets.npy  valid_pixels.npy  valid_targets.npy  facts.json
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor

from heedful.atomic_io import atomic_folder, check_manifest
from heedful.config import read_json
from heedful.data.collate import IGNORE_INDEX, ImageBatch
from heedful.data.images import (
    ImageDataset,
    Images,
    ImageTransform,
    LabelFn,
    Pixels,
    open_training_images,
    open_validation_images,
)
from heedful.data.seeding import IntArray
from heedful.data.splits import LARGEST_SHARE, require_hold_out
from heedful.errors import Notice, UserError, warn
from heedful.models.vit import Vit, VitConfig
from heedful.nn.embeddings import to_patches
from heedful.training.run_config import Files
from heedful.training.settings import Settings
from heedful.training.tasks.base import Preparation, PreparedTask, Task, TaskDescription, build, refuse_weights
from heedful.training.tasks.labels import accuracy, label_ids, label_loss
from heedful.training.validation import N_SAMPLES, Validation, ValidationSample, Validator

FloatArray = npt.NDArray[np.float64]
ARRAYS = ("pixels", "targets", "valid_pixels", "valid_targets")
HIDDEN_RATE = 0.5  # share of the patches that are masked
IMAGE_SETTINGS = frozenset({"data.flip", "data.shift", "data.image_size", "data.label"})


@dataclass(frozen=True)
class PreparedImages:
    """Images of one size, prepared."""

    pixels: Pixels
    targets: IntArray
    valid_pixels: Pixels
    valid_targets: IntArray
    labels: tuple[str, ...]
    sizes: tuple[int, ...]  # number of training images of each corpus
    fingerprint: str
    valid_fingerprint: str


def prepare_images(preparation: Preparation) -> None:
    """Prepare images in the run folder."""
    refuse_weights(preparation)
    files, settings = preparation.files, preparation.settings
    corpora = [open_training_images(path, **settings.image_options) for path in files.source]
    has_labels = settings.task == "image_classification"  # the tasks on patches ignore labels
    labels = corpora[0].labels
    _require_alike(corpora, has_labels=has_labels)
    if has_labels and len(labels) < 2:
        raise UserError(
            f"{files.source[0]}: its images have no labels, or all the same one: give a folder for each label "
            "(.npz: y). Without labels a model can learn from patches: --set task=masked_patches"
        )
    training, valid, sizes = _split(corpora, files, settings)
    if has_labels:
        valid = with_labels_of(valid, labels)
        _warn_of_missing_labels(labels, training)
    facts = {
        "labels": labels,
        "sizes": sizes,
        "fingerprint": training.fingerprint,
        "valid_fingerprint": valid.fingerprint,
    }
    with atomic_folder(preparation.folder / "data" / "images") as aside:
        for prefix, part in (("", training), ("valid_", valid)):
            np.save(aside / f"{prefix}pixels.npy", part.pixels, allow_pickle=False)
            np.save(aside / f"{prefix}targets.npy", part.targets, allow_pickle=False)
        (aside / "facts.json").write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")
    held = "given" if files.valid else "held out"
    shape = " x ".join(map(str, training.pixels.shape[1:]))
    labelled = f", {len(labels)} labels" if has_labels else ""
    preparation.notify(f"training on {len(training):,} images of {shape}{labelled}; {len(valid):,} {held}")


def reopen_images(folder: Path, settings: Settings) -> PreparedImages:
    """Read what `prepare_images` wrote."""
    path = folder / "data" / "images"
    check_manifest(path)
    facts = read_json(path / "facts.json")
    arrays = {name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
    return PreparedImages(
        **arrays,
        labels=tuple(facts["labels"]),
        sizes=tuple(facts["sizes"]),
        fingerprint=facts["fingerprint"],
        valid_fingerprint=facts["valid_fingerprint"],
    )


def _require_alike(corpora: Sequence[Images], *, has_labels: bool) -> None:
    first = corpora[0]
    for images in corpora:
        if images.pixels.shape[1:] != first.pixels.shape[1:] or (has_labels and images.labels != first.labels):
            difference = "other labels or another size" if has_labels else "another size"
            raise UserError(f"{images.name}: {difference} than {first.name}; give one set of images")


def _warn_of_missing_labels(labels: tuple[str, ...], training: Images) -> None:
    present = set(training.targets.tolist())
    if missing := [label for number, label in enumerate(labels) if number not in present]:
        names = ", ".join(map(repr, missing[:5]))
        warn(Notice(f"no training image has the label {names}{', …' if len(missing) > 5 else ''}"))


def _split(corpora: Sequence[Images], files: Files, settings: Settings) -> tuple[Images, Images, list[int]]:
    """Return training images, validation images, and the number of training images of each corpus.

    Validation images are those of files.valid, or a share of each label.
    """
    joined = Images(
        np.concatenate([images.pixels for images in corpora]),
        np.concatenate([images.targets for images in corpora]),
        corpora[0].labels,
        " and ".join(images.name for images in corpora),
    )
    if files.valid:
        options = settings.image_options
        valid = open_validation_images(files.valid[0], like=joined, resize=options["resize"], label=options["label"])
        if not len(valid):
            raise UserError(f"{files.valid[0]}: no image to validate with. Give another file, or leave out --valid")
        return joined, valid, [len(images) for images in corpora]
    require_hold_out(settings.data.hold_out, give="--valid")
    share = min(settings.data.hold_out / max(1, len(joined)), LARGEST_SHARE)
    held_out = joined.hold_out_mask(share, seed=0)
    if not held_out.any():
        raise UserError(f"{len(joined):,} images are too few to hold some out: give --valid, or more images")
    ends = np.cumsum([len(images) for images in corpora])
    sizes = [int((~part).sum()) for part in np.split(held_out, ends[:-1])]
    return joined.take(np.flatnonzero(~held_out)), joined.take(np.flatnonzero(held_out)), sizes


def with_labels_of(images: Images, labels: tuple[str, ...]) -> Images:
    """Number the labels of images as in training: some of those may be missing, none may be new."""
    present, inverse = np.unique(images.targets, return_inverse=True)
    numbers = label_ids([images.labels[number] for number in present], labels, where=images.name)
    return replace(images, targets=np.array(numbers, np.int64)[inverse], labels=labels)


def config_for(prepared: PreparedImages, settings: Settings, head: str) -> VitConfig:
    """Return the config: sizes of the images, and their mean and spread unless a model to start from has its own."""
    _, n_channels, height, _ = prepared.pixels.shape
    mean, std = mean_and_std(prepared.pixels[:: max(1, len(prepared.pixels) // 2000)])
    labels = {"labels": list(prepared.labels)} if head == "classify" else {}
    config: VitConfig = settings.model_config(
        image_size=height,
        n_channels=n_channels,
        head=head,
        mean=[round(float(value), 4) for value in mean],
        std=[round(max(float(value), 0.01), 4) for value in std],
        **labels,
    )
    return config


def mean_and_std(pixels: Pixels) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each channel, with pixels from 0 to 1, by counting bytes."""
    counts = np.zeros((pixels.shape[1], 256))
    for image in pixels:
        counts += [np.bincount(channel.ravel(), minlength=256) for channel in image]
    shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    return mean, np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))


@dataclass(frozen=True)
class ImageObjective:
    """What a model learns from images: the labels of each image or patch, the loss, and scores of predictions."""

    head: str
    make_labels: Callable[[IntArray, VitConfig, Settings], LabelFn]
    loss: Callable[..., Tensor]
    logits: Callable[[Any, ImageBatch], Tensor] | None  # for accuracy; None: the loss is all there is
    what: str
    output: str
    tag: str


def assemble(prepared: PreparedImages, settings: Settings, *, objective: ImageObjective) -> PreparedTask:
    """Put together the parts that a trainer needs."""
    config = config_for(prepared, settings, objective.head)
    plain = ImageTransform(config.mean, config.std)
    augmented = ImageTransform(config.mean, config.std, flip=settings.data.flip, shift=settings.data.shift)
    n_targets = 1 if objective.head == "classify" else config.n_patches  # of one image

    def valid_batches() -> list[ImageBatch]:
        labels = objective.make_labels(prepared.valid_targets, config, settings)
        dataset = ImageDataset(prepared.valid_pixels, labels, plain, key="valid")
        n_rows = max(1, settings.data.batch_tokens // n_targets)
        groups = np.array_split(np.arange(len(prepared.valid_pixels)), -(-len(prepared.valid_pixels) // n_rows))
        return [dataset.batch(group, np.arange(len(group)), seed=i) for i, group in enumerate(groups)]

    return PreparedTask(
        tokenizers=None,
        make_dataset=lambda pin: ImageDataset(
            prepared.pixels,
            objective.make_labels(prepared.targets, config, settings),
            augmented,
            key=prepared.fingerprint,
            n_labels=n_targets,
            pin_memory=pin,
        ),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: objective.loss(
            model, batch, label_smoothing=settings.loss.label_smoothing
        ),
        make_validator=lambda notify: ImageValidator(valid_batches(), prepared, objective),
        description=TaskDescription(
            what=objective.what,
            output=objective.output,
            tag=objective.tag,
            unit="images",
            train=prepared.sizes,
            valid=len(prepared.valid_targets),
            valid_sha256=prepared.valid_fingerprint,
            command="heedful classify IMAGE -m {run}"
            if objective.head == "classify"
            else "heedful train RUN --init-from {run} --images DIR",
        ),
    )


class ImageValidator(Validator[ImageBatch]):
    """The loss on the validation images and, if the model chooses among labels, the accuracy."""

    def __init__(self, batches: Sequence[ImageBatch], prepared: PreparedImages, objective: ImageObjective) -> None:
        super().__init__(batches)
        self.prepared, self.objective = prepared, objective

    def score_batch(self, model: Vit, batch: ImageBatch) -> tuple[Tensor, Any]:
        if self.objective.logits is None:
            return self.objective.loss(model, batch), None
        logits = self.objective.logits(model, batch)
        return label_loss(logits, batch.labels), (batch.indices, batch.labels, logits.argmax(dim=-1))

    def summarize(self, model: Vit, loss: float, outputs: list[Any]) -> Validation:
        if self.objective.logits is None:
            return Validation(loss=loss)
        n_right = sum(int((predicted == labels).sum()) for _, labels, predicted in outputs)
        score = accuracy(n_right, sum(labels.numel() for _, labels, _ in outputs))
        rows = [
            row for output in outputs if output[1].dim() == 1 for row in zip(*(x.tolist() for x in output), strict=True)
        ]
        names = self.prepared.labels
        return Validation(
            loss=loss,
            metrics={"accuracy": score.value},
            scores=(score,),
            n_scored=len(self.prepared.valid_targets),
            samples=tuple(
                ValidationSample(f"image {index}", names[label], names[predicted])
                for index, label, predicted in rows[:N_SAMPLES]
            ),
        )


def image_label(targets: IntArray, config: VitConfig, settings: Settings) -> LabelFn:
    """Give each image its label."""
    return lambda number, random: np.asarray(targets[number], np.int64)


def image_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy summed over the images of a batch."""
    return label_loss(model(batch.pixels), batch.labels, label_smoothing=label_smoothing)


def masked_patches(targets: IntArray, config: VitConfig, settings: Settings) -> LabelFn:
    """Mask some patches of each image: the label of a masked patch is its position, IGNORE_INDEX elsewhere."""
    n_masked = max(1, round((settings.noise.rate or HIDDEN_RATE) * config.n_patches))

    def labels(number: int, random: np.random.Generator) -> IntArray:
        positions = np.full(config.n_patches, IGNORE_INDEX, np.int64)
        masked = random.permutation(config.n_patches)[:n_masked]
        positions[masked] = masked
        return positions

    return labels


def masked_patch_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the mean squared error of the pixels of each masked patch, summed over these patches."""
    masked = batch.labels != IGNORE_INDEX  # (B, P)
    predicted = model(batch.pixels, masked=masked)[masked]  # (M, C x s x s)
    pixels = to_patches(batch.pixels, model.config.patch_size)[masked]
    return F.mse_loss(predicted, pixels, reduction="none").mean(dim=-1).sum()


def shuffled_patches(targets: IntArray, config: VitConfig, settings: Settings) -> LabelFn:
    """Shuffle the patches: the label of each position is where its patch came from."""
    return lambda number, random: random.permutation(config.n_patches)


def order_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of the order, summed over the patches of a batch."""
    return label_loss(order_logits(model, batch), batch.labels, label_smoothing=label_smoothing)


def order_logits(model: Vit, batch: ImageBatch) -> Tensor:
    """Return logits of where each patch came from (B, P, P); the model gets shuffled patches without positions."""
    logits: Tensor = model.head(model.hidden_states(batch.pixels, order=batch.labels, with_positions=False))
    return logits


IMAGE_CLASSIFICATION = Task(
    families=("vit",),
    content="images",
    metrics=("accuracy", "loss"),
    settings_used=IMAGE_SETTINGS | {"loss.label_smoothing"},
    recipe=lambda family, files, data: "vit",
    prepare=prepare_images,
    reopen=reopen_images,
    assemble=partial(
        assemble,
        objective=ImageObjective(
            head="classify",
            make_labels=image_label,
            loss=image_loss,
            logits=lambda model, batch: model(batch.pixels),
            what="classifier of images",
            output="labels",
            tag="image-classification",
        ),
    ),
    counted="images",
)
MASKED_PATCHES = Task(
    families=("vit",),
    content="images",
    metrics=("loss",),
    settings_used=IMAGE_SETTINGS | {"noise.rate"},
    recipe=lambda family, files, data: "vit-patches",
    prepare=prepare_images,
    reopen=reopen_images,
    assemble=partial(
        assemble,
        objective=ImageObjective(
            head="masked_patches",
            make_labels=masked_patches,
            loss=masked_patch_loss,
            logits=None,
            what="encoder of images",
            output="pixels that it predicts",
            tag="image-feature-extraction",
        ),
    ),
    counted="patches",
)
SHUFFLED_PATCHES = Task(
    families=("vit",),
    content="images",
    metrics=("accuracy", "loss"),
    settings_used=IMAGE_SETTINGS | {"loss.label_smoothing"},
    recipe=lambda family, files, data: "vit-patches",
    prepare=prepare_images,
    reopen=reopen_images,
    assemble=partial(
        assemble,
        objective=ImageObjective(
            head="patch_order",
            make_labels=shuffled_patches,
            loss=order_loss,
            logits=order_logits,
            what="encoder of images",
            output="positions of patches",
            tag="image-feature-extraction",
        ),
    ),
    counted="patches",
)
