"""What tasks with labels share: the set of labels, their loss, and scores of predicted ones."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.collate import IGNORE_INDEX
from heedful.errors import UserError, did_you_mean
from heedful.evaluation.metrics import Score

MOST_LABELS = 100_000


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Return each label once, sorted, so that the order of the examples does not matter.

    >>> label_names(["good", "bad", "good"])
    ('bad', 'good')
    """
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise UserError(
            f"all examples have the label {names[0]!r}: there is nothing to distinguish" if names else "no labels"
        )
    if len(names) > MOST_LABELS:
        raise UserError(f"{len(names):,} different labels, at most {MOST_LABELS:,}: is the label in the right column?")
    return names


def label_ids(labels: Iterable[str], names: Sequence[str], *, where: str) -> list[int]:
    """Return the number of each label; raise a UserError for one that training does not have.

    >>> label_ids(["good", "bad"], ("bad", "good"), where="a.tsv:1")
    [1, 0]
    """
    id_of = {name: number for number, name in enumerate(names)}
    ids = []
    for label in labels:
        if label not in id_of:
            raise UserError(
                f"{where}: the label {label!r} is not among those of training{did_you_mean(label, names) or '.'} "
                "Correct it, take the example out, or train with examples that have this label"
            )
        ids.append(id_of[label])
    return ids


def label_loss(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of logits (…, L) and labels (…), summed over all but IGNORE_INDEX."""
    return F.cross_entropy(
        logits.flatten(0, -2).float() if logits.dtype == torch.bfloat16 else logits.flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def accuracy(n_right: int, n_all: int) -> Score:
    return Score("accuracy", 100.0 * n_right / max(1, n_all), "")


def macro_f1(predicted: Sequence[int], labels: Sequence[int], n_labels: int) -> float:
    """Return the mean of the F1 scores of the labels, in per cent: a rare label counts as much as a common one."""
    n_right, n_predicted, n_true = torch.zeros(3, n_labels)
    for guess, label in zip(predicted, labels, strict=True):
        n_right[label] += guess == label
        n_predicted[guess] += 1
        n_true[label] += 1
    present = n_true > 0
    f1 = 2 * n_right / (n_predicted + n_true).clamp(min=1)
    return 100.0 * float(f1[present].mean()) if bool(present.any()) else 0.0
