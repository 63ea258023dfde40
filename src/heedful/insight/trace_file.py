"""The object of the trace file (docs/look.md): the same keys for every family, null where a model has no such part."""

import json
from collections.abc import Mapping

from heedful.insight.packed_arrays import to_plain

FORMAT, VERSION = "heedful-trace", 4
PARTS = (
    "model",
    "source",
    "target",
    "translation",
    "attention",
    "alignment",
    "steps",
    "beam",
    "positions",
    "lens",
    "causes",
    "walk",
    "halting",
    "changes",
    "answer",
    "image",
    "pieces",
)
KINDS = ("encoder", "decoder", "cross")


def trace_values(parts: Mapping[str, object]) -> dict[str, object]:
    """Plain values, every part in its place."""
    unknown = sorted(set(parts) - set(PARTS))
    assert not unknown, f"the trace file has no part {unknown}"
    values = {name: to_plain(parts.get(name)) for name in PARTS}
    attention = parts["attention"]
    assert isinstance(attention, Mapping)
    values["attention"] = {kind: to_plain(attention.get(kind)) for kind in KINDS}
    return {"format": FORMAT, "version": VERSION, **values}


def to_text(values: dict[str, object]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
