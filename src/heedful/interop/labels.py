"""Labels, bends and heads in the words of Hugging Face's encoders: what BERT's and ViT's settings have in common."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from heedful.errors import UserError
from heedful.interop.values import Values

# theirs -> ours
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
# ours -> theirs
ACTIVATIONS_THERE = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu", "swish": "silu"}

SEVERAL, ONE = "multi_label_classification", "single_label_classification"


def head_from(values: Values, heads: Mapping[str, str], *, default: str) -> str:
    """The head that `architectures` names; `heads` maps their classes to ours."""
    names = values.get("architectures", [default])
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    if not isinstance(name, str) or name not in heads:
        raise UserError(f"{values.where}: 'architectures' is {names!r}; heedful reads {', '.join(heads)}")
    return heads[name]


def has_pooler(theirs: Collection[str], prefix: str) -> bool:
    """Whether one of a base model's tensors, with the prefix of its names or without, is the pooler's."""
    return any(f"{start}pooler.dense.{part}" in theirs for start in ("", prefix) for part in ("weight", "bias"))


def labels_from(values: Values) -> tuple[str, ...]:
    """The names of the labels, in the order of their numbers: `id2label`, or as many as `num_labels` says."""
    named = values.get("id2label")
    if named is None:
        count = values.whole("num_labels", 2)
        if not 1 <= count <= 10**6:
            raise values.wrong("num_labels", "a number from 1 to 1,000,000")
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(named, dict) or not named:
        raise values.wrong("id2label", "a table of numbers and names")
    if any(str(number) not in named for number in range(len(named))):
        raise UserError(f"{values.where}: 'id2label' does not count from 0 to {len(named) - 1}")
    return tuple(str(named[str(number)]) for number in range(len(named)))


def exclusive_from(values: Values, labels: Sequence[str]) -> bool:
    """Whether one label alone is right."""
    kind = values.get("problem_type", ONE)
    if kind not in (ONE, SEVERAL):
        raise UserError(f"{values.where}: 'problem_type' is {kind!r}; heedful's classifiers tell labels apart")
    return bool(kind == ONE and len(labels) > 1)


def labels_to(labels: Sequence[str], *, exclusive: bool) -> dict[str, Any]:
    """What their config.json says of the labels."""
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "problem_type": ONE if exclusive else SEVERAL,
    }
