"""What tasks with labels share: which labels there are, and how predicted ones are judged."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.collate import IGNORE_INDEX
from heedful.errors import UserError, did_you_mean
from heedful.evaluation.metrics import Score

MOST_LABELS = 100_000


def names_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Each label once, in the order of the alphabet: the same whatever the order of the examples."""
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise UserError(
            f"all examples have the label {names[0]!r}: nothing can be told apart" if names else "no labels"
        )
    if len(names) > MOST_LABELS:
        raise UserError(f"{len(names):,} different labels, at most {MOST_LABELS:,}: is the label in the right column?")
    return names


def numbers_of(labels: Iterable[str], names: Sequence[str], *, where: str) -> list[int]:
    number = {name: place for place, name in enumerate(names)}
    numbers = []
    for label in labels:
        if label not in number:
            raise UserError(
                f"{where}: the label {label!r} is not among those of training{did_you_mean(label, names) or '.'} "
                "Correct it, take the example out, or train with examples that have this label"
            )
        numbers.append(number[label])
    return numbers


def label_loss(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Summed over what is asked: logits (…, L), labels (…) with NONE where nothing is."""
    return F.cross_entropy(
        logits.flatten(0, -2).float() if logits.dtype == torch.bfloat16 else logits.flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def accuracy(right: int, asked: int) -> Score:
    return Score("accuracy", 100.0 * right / max(1, asked), "")


def macro_f1(predicted: Sequence[int], wanted: Sequence[int], n_labels: int) -> float:
    """The mean of the F1 of each label, in per cent: a rare label counts as much as a common one."""
    found = torch.zeros(3, n_labels)
    for said, true in zip(predicted, wanted, strict=True):
        found[0, true] += said == true
        found[1, said] += 1
        found[2, true] += 1
    right, said_so, is_so = found
    present = is_so > 0
    f1 = 2 * right / (said_so + is_so).clamp(min=1)
    return 100.0 * float(f1[present].mean()) if bool(present.any()) else 0.0
