"""Pictures: how they are prepared, and which label one has (ViT).

run/data/pictures/  pixels.npy, targets.npy, valid_pixels.npy, valid_targets.npy, facts.json

Pictures without labels: what a hidden patch shows, and where a patch came from.
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
from heedful.data.images import ImageDataset, Images, ImageTransform, LabelFn, Pixels
from heedful.data.seeding import IntArray
from heedful.data.splits import LARGEST_SHARE, require_hold_out
from heedful.errors import Notice, UserError, warn
from heedful.models.model_io import Model
from heedful.models.vit import Vit, VitConfig
from heedful.nn.embeddings import to_patches
from heedful.training.pictures import open_training, open_valid
from heedful.training.run_config import Files
from heedful.training.settings import Settings
from heedful.training.tasks.base import Preparation, PreparedTask, Task, TaskDescription, build
from heedful.training.tasks.labels import accuracy, label_loss, numbers_of
from heedful.training.tasks.stages import refuse_weights
from heedful.training.validation import Validation, ValidationSample, evaluation_mode, mean_loss

FloatArray = npt.NDArray[np.float64]
N_SAMPLES = 3
ARRAYS = ("pixels", "targets", "valid_pixels", "valid_targets")


@dataclass(frozen=True)
class PreparedImages:
    pixels: Pixels
    targets: IntArray
    valid_pixels: Pixels
    valid_targets: IntArray
    labels: tuple[str, ...]
    sizes: tuple[int, ...]  # how many pictures of each corpus are for training
    fingerprint: str
    valid_fingerprint: str


def prepare_images(given: Preparation) -> None:
    refuse_weights(given)
    corpora = [open_training(path, given.settings) for path in given.files.source]
    has_labels = given.settings.task == "image_classification"  # where patches are asked for, labels mean nothing
    labels = corpora[0].labels
    _require_alike(corpora, has_labels=has_labels)
    if has_labels and len(labels) < 2:
        raise UserError(
            f"{given.files.source[0]}: its pictures have no labels, or all the same one: give a folder for each label "
            "(.npz: y). Without labels a model can learn from patches: --set task=masked_patches"
        )
    training, valid, sizes = _divide(corpora, given.files, given.settings)
    if has_labels:
        valid = numbered_as(valid, labels)
        _warn_of_unseen(labels, training)
    facts = {
        "labels": labels,
        "sizes": sizes,
        "fingerprint": training.fingerprint,
        "valid_fingerprint": valid.fingerprint,
    }
    with atomic_folder(given.folder / "data" / "pictures") as aside:
        for name, part in (("", training), ("valid_", valid)):
            np.save(aside / f"{name}pixels.npy", part.pixels, allow_pickle=False)
            np.save(aside / f"{name}targets.npy", part.targets, allow_pickle=False)
        (aside / "facts.json").write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")
    held = "given" if given.files.valid else "held out"
    shape = " x ".join(map(str, training.pixels.shape[1:]))
    labelled = f", {len(labels)} labels" if has_labels else ""
    given.say(f"training on {len(training):,} pictures of {shape}{labelled}; {len(valid):,} {held}")


def _require_alike(corpora: Sequence[Images], *, has_labels: bool) -> None:
    first = corpora[0]
    for images in corpora:
        if images.pixels.shape[1:] != first.pixels.shape[1:] or (has_labels and images.labels != first.labels):
            other = "other labels or another size" if has_labels else "another size"
            raise UserError(f"{images.name}: {other} than {first.name}; give one set of images")


def _warn_of_unseen(labels: tuple[str, ...], training: Images) -> None:
    seen = set(training.targets.tolist())
    if unseen := [label for number, label in enumerate(labels) if number not in seen]:
        names = ", ".join(map(repr, unseen[:5]))
        warn(Notice(f"no picture to learn from has the label {names}{', …' if len(unseen) > 5 else ''}"))


def _divide(corpora: Sequence[Images], files: Files, settings: Settings) -> tuple[Images, Images, list[int]]:
    """For training, and for validation: what was given, or a share of each label. A file that was given for both has
    two parts of its own. Last, how many pictures of each corpus are for training."""
    joined = Images(
        np.concatenate([images.pixels for images in corpora]),
        np.concatenate([images.targets for images in corpora]),
        corpora[0].labels,
        " and ".join(images.name for images in corpora),
    )
    if files.valid:
        given = open_valid(files.valid[0], settings, like=joined)
        if not len(given):
            raise UserError(f"{files.valid[0]}: no picture to validate with. Give another file, or leave out --valid")
        return joined, given, [len(images) for images in corpora]
    require_hold_out(settings.data.hold_out, give="--valid")
    share = min(settings.data.hold_out / max(1, len(joined)), LARGEST_SHARE)
    held_out = joined.hold_out_mask(share, seed=0)
    if not held_out.any():
        raise UserError(f"{len(joined):,} pictures are too few to hold some out: give --valid, or more pictures")
    ends = np.cumsum([len(images) for images in corpora])
    sizes = [int((~part).sum()) for part in np.split(held_out, ends[:-1])]
    return joined.take(np.flatnonzero(~held_out)), joined.take(np.flatnonzero(held_out)), sizes


def numbered_as(images: Images, labels: tuple[str, ...]) -> Images:
    """The same pictures, their labels numbered as in training: some of these may be missing, none may be new."""
    present, places = np.unique(images.targets, return_inverse=True)
    numbers = numbers_of([images.labels[number] for number in present], labels, where=images.name)
    return replace(images, targets=np.array(numbers, np.int64)[places], labels=labels)


def reopen_images(folder: Path, settings: Settings) -> PreparedImages:
    place = folder / "data" / "pictures"
    check_manifest(place)
    facts = read_json(place / "facts.json")
    arrays = {name: np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
    return PreparedImages(
        **arrays,
        labels=tuple(facts["labels"]),
        sizes=tuple(facts["sizes"]),
        fingerprint=facts["fingerprint"],
        valid_fingerprint=facts["valid_fingerprint"],
    )


def config_for(prepared: PreparedImages, settings: Settings, head: str) -> VitConfig:
    """The shape is that of the pictures; their mean and spread too, unless a model to start from has its own."""
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
    """Of each channel, pixels being from 0 to 1; by counting bytes, picture by picture."""
    counts = np.zeros((pixels.shape[1], 256))
    for picture in pixels:
        counts += [np.bincount(channel.ravel(), minlength=256) for channel in picture]
    shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    return mean, np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))


def lesson_with(
    prepared: PreparedImages,
    settings: Settings,
    *,
    head: str,
    ask: Callable[[IntArray, VitConfig, Settings], LabelFn],
    loss: Callable[..., Tensor],
    judge: Callable[..., Validation],
    what: tuple[str, str, str],
) -> PreparedTask:
    """The lesson of a task on pictures, which are all alike but for what is asked."""
    config = config_for(prepared, settings, head)
    plain = ImageTransform(config.mean, config.std)
    changes = ImageTransform(config.mean, config.std, flip=settings.data.flip, shift=settings.data.shift)
    n_asked = 1 if head == "classify" else config.n_patches

    def valid_batches() -> list[ImageBatch]:
        dataset = ImageDataset(prepared.valid_pixels, ask(prepared.valid_targets, config, settings), plain, key="valid")
        n_rows = max(1, settings.data.batch_tokens // n_asked)
        groups = np.array_split(np.arange(len(prepared.valid_pixels)), -(-len(prepared.valid_pixels) // n_rows))
        return [dataset.batch(group, np.arange(len(group)), seed=i) for i, group in enumerate(groups)]

    name, output, tag = what
    return PreparedTask(
        tokenizers=None,
        make_dataset=lambda pin: ImageDataset(
            prepared.pixels,
            ask(prepared.targets, config, settings),
            changes,
            key=prepared.fingerprint,
            n_labels=n_asked,
            pin_memory=pin,
        ),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: loss(model, batch, label_smoothing=settings.loss.label_smoothing),
        make_validator=lambda say: partial(judge, valid_batches(), prepared, loss),
        about=TaskDescription(
            what=name,
            output=output,
            tag=tag,
            unit="images",
            train=prepared.sizes,
            valid=len(prepared.valid_targets),
            valid_sha256=prepared.valid_fingerprint,
            command="heedful classify PICTURE -m {run}"
            if head == "classify"
            else "heedful train RUN --init-from {run} --images DIR",
        ),
    )


def ask_label(targets: IntArray, config: VitConfig, settings: Settings) -> LabelFn:
    return lambda number, random: np.asarray(targets[number], np.int64)


def picture_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    return label_loss(model(batch.pixels), batch.labels, label_smoothing=label_smoothing)


def judge_labels(
    batches: Sequence[ImageBatch],
    prepared: PreparedImages,
    loss: Callable[..., Tensor],
    model: Model,
    *,
    logits_of: Callable[[Any, ImageBatch], Tensor] = lambda model, batch: model(batch.pixels),
) -> Validation:
    """The share of labels that are right."""
    right = asked = 0
    samples: list[ValidationSample] = []

    def loss_of(batch: ImageBatch) -> Tensor:
        nonlocal right, asked
        logits = logits_of(model, batch)
        said = logits.argmax(dim=-1)
        right += int((said == batch.labels).sum())
        asked += batch.labels.numel()
        if batch.labels.dim() == 1 and len(samples) < N_SAMPLES:
            samples.extend(_labelled(prepared, said, batch))
        return label_loss(logits, batch.labels)

    with evaluation_mode(model) as device:
        mean = mean_loss(batches, loss_of, device)
    score = accuracy(right, asked)
    return Validation(
        loss=mean,
        metrics={"accuracy": score.value},
        scores=(score,),
        n_scored=len(prepared.valid_targets),
        samples=tuple(samples[:N_SAMPLES]),
    )


def _labelled(prepared: PreparedImages, said: Tensor, batch: ImageBatch) -> list[ValidationSample]:
    names = prepared.labels
    rows = zip(batch.indices.tolist(), batch.labels.tolist(), said.tolist(), strict=True)
    return [ValidationSample(f"picture {number}", names[true], names[ours]) for number, true, ours in rows][:N_SAMPLES]


def image_task(
    metrics: tuple[str, ...], lesson: Callable[[PreparedImages, Settings], PreparedTask], *, recipe: str = "vit"
) -> Task[PreparedImages]:
    return Task(
        families=("vit",),
        content="images",
        metrics=metrics,
        recipe=lambda family, files, data: recipe,
        prepare=prepare_images,
        reopen=reopen_images,
        lesson=lesson,
    )


IMAGE_CLASSIFICATION = image_task(
    ("accuracy", "loss"),
    partial(
        lesson_with,
        head="classify",
        ask=ask_label,
        loss=picture_loss,
        judge=judge_labels,
        what=("classifier of images", "labels", "image-classification"),
    ),
)

HIDDEN_RATE = 0.5


def ask_hidden(targets: IntArray, config: VitConfig, settings: Settings) -> LabelFn:
    """Some patches of each picture are hidden: their places, NONE elsewhere."""
    n_hidden = max(1, round((settings.noise.rate or HIDDEN_RATE) * config.n_patches))

    def ask(number: int, random: np.random.Generator) -> IntArray:
        labels = np.full(config.n_patches, IGNORE_INDEX, np.int64)
        hidden = random.permutation(config.n_patches)[:n_hidden]
        labels[hidden] = hidden
        return labels

    return ask


def ask_order(targets: IntArray, config: VitConfig, settings: Settings) -> LabelFn:
    """The patches in a random order: for each place, where its patch came from."""
    return lambda number, random: random.permutation(config.n_patches)


def hidden_patch_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """The mean squared error of the pixels of each hidden patch, summed over these."""
    hidden = batch.labels != IGNORE_INDEX  # (B, P)
    painted = model(batch.pixels, masked=hidden)[hidden]  # (M, C x s x s)
    wanted = to_patches(batch.pixels, model.config.patch_size)[hidden]
    return F.mse_loss(painted, wanted, reduction="none").mean(dim=-1).sum()


def order_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    return label_loss(order_logits(model, batch), batch.labels, label_smoothing=label_smoothing)


def order_logits(model: Vit, batch: ImageBatch) -> Tensor:
    """Where each patch came from (B, P, P), without a word about where it stands now."""
    logits: Tensor = model.head(model.states(batch.pixels, order=batch.labels, with_positions=False))
    return logits


def judge_loss(
    batches: Sequence[ImageBatch], prepared: PreparedImages, loss: Callable[..., Tensor], model: Model
) -> Validation:
    with evaluation_mode(model) as device:
        return Validation(loss=mean_loss(batches, partial(loss, model), device))


MASKED_PATCHES = image_task(
    ("loss",),
    partial(
        lesson_with,
        head="masked_patches",
        ask=ask_hidden,
        loss=hidden_patch_loss,
        judge=judge_loss,
        what=("encoder of images", "pixels that it paints", "image-feature-extraction"),
    ),
    recipe="vit-patches",
)
SHUFFLED_PATCHES = image_task(
    ("accuracy", "loss"),
    partial(
        lesson_with,
        head="patch_order",
        ask=ask_order,
        loss=order_loss,
        judge=partial(judge_labels, logits_of=order_logits),
        what=("encoder of images", "places of patches", "image-feature-extraction"),
    ),
    recipe="vit-patches",
)
