"""Pictures without labels: what a hidden patch shows, and where a patch came from."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from heedful.data.batching import IntArray
from heedful.data.labelled import NONE
from heedful.data.pictures import Ask, ImageBatch
from heedful.models.folder import Model
from heedful.models.vit import Vit, VitConfig
from heedful.nn.patches import to_patches
from heedful.training.settings import Settings
from heedful.training.tasks.images import PreparedImages, image_task, judge_labels, lesson_with
from heedful.training.tasks.labels import label_loss
from heedful.training.validation import Validation, judging, mean_loss

HIDDEN_RATE = 0.5


def ask_hidden(targets: IntArray, config: VitConfig, settings: Settings) -> Ask:
    """Some patches of each picture are hidden: their places, NONE elsewhere."""
    n_hidden = max(1, round((settings.noise.rate or HIDDEN_RATE) * config.n_patches))

    def ask(number: int, random: np.random.Generator) -> IntArray:
        labels = np.full(config.n_patches, NONE, np.int64)
        hidden = random.permutation(config.n_patches)[:n_hidden]
        labels[hidden] = hidden
        return labels

    return ask


def ask_order(targets: IntArray, config: VitConfig, settings: Settings) -> Ask:
    """The patches in a random order: for each place, where its patch came from."""
    return lambda number, random: random.permutation(config.n_patches)


def hidden_patch_loss(model: Vit, batch: ImageBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """The mean squared error of the pixels of each hidden patch, summed over these."""
    hidden = batch.labels != NONE  # (B, P)
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
    with judging(model) as device:
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
