"""Check a trace file: its structure against docs/trace.schema.json, then the sizes that JSON Schema cannot express."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs

from heedful.insight.packed_arrays import unpack

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "trace.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
Trace = Mapping[str, Any]


class TraceError(AssertionError):
    """An error in a trace file and its position."""


def check_trace(trace: Any) -> None:
    """Raise TraceError at the first value that breaks the schema or has the wrong size."""
    for error in VALIDATOR.iter_errors(trace):
        raise TraceError(f"{'.'.join(map(str, error.instance_path)) or 'trace'}: {error.message[:300]}")
    sizes = sizes_of(trace)
    _check_texts(trace, sizes)
    _check_attention(trace, sizes)
    _check_steps(trace, sizes)
    _check_positions(trace["positions"], sizes)
    _check_walk(trace, sizes)


def sizes_of(trace: Trace) -> dict[str, int]:
    """Name the sizes by letters: S and T tokens, E and L layers, H heads, D, K and F widths, n numbers per vector."""
    model = trace["model"]
    return {
        "S": len(trace["source"]["ids"]) if trace["source"] else 0,
        "T": len(trace["target"]["ids"]) if trace["target"] else 0,
        "E": model["n_encoder_layers"],
        "L": model["n_decoder_layers"],
        "H": model["n_heads"],
        "D": model["d_model"],
        "K": model["d_head"],
        "F": model["d_ff"],
        "n": trace["walk"]["numbers"],
    }


def _check_texts(trace: Trace, sizes: Mapping[str, int]) -> None:
    for side, letter, per_token, spans in (
        ("source", "S", ("tokens", "ids"), ("words",)),
        ("target", "T", ("tokens", "ids", "inputs", "input_ids"), ("words", "input_words")),
    ):
        if trace[side] is None:
            continue
        for name in per_token:
            _length(trace[side][name], sizes[letter], f"{side}.{name}")
        for name in spans:
            _spans(trace[side][name], sizes[letter], f"{side}.{name}")
    if trace["source"]:
        _below(trace["source"]["masked"], sizes["S"], "source.masked")
        _below([answer["place"] or 0 for answer in trace["answer"] or []], sizes["S"], "answer.place")
    if trace["target"]:
        _below([trace["target"]["n_forced"]], sizes["T"] + 1, "target.n_forced")
    for source, target in trace["alignment"] or []:
        _below([source], sizes["S"], "alignment")
        _below([target], sizes["T"], "alignment")


def _check_attention(trace: Trace, sizes: Mapping[str, int]) -> None:
    for kind, letters in (("encoder", "EHSS"), ("decoder", "LHTT"), ("cross", "LHTS")):
        maps = trace["attention"][kind]
        if maps is None:
            continue
        where, shape = f"attention.{kind}", [sizes[letter] for letter in letters]
        _shape(maps["weights"], shape, f"{where}.weights")
        _shape(maps["scores"], shape, f"{where}.scores")
        _shape(maps["mask"], shape, f"{where}.mask", broadcast=True)
        assert (maps["alignment"] is not None) == (kind == "cross"), f"{where}.alignment belongs to cross-attention"
        for name in ("entropy", "locality", *(["alignment"] if kind == "cross" else [])):
            _length(maps[name], shape[0], f"{where}.{name}")
            for heads in maps[name]:
                _length(heads, shape[1], f"{where}.{name}")


def _check_steps(trace: Trace, sizes: Mapping[str, int]) -> None:
    if trace["steps"] is not None:
        _length(trace["steps"], sizes["T"], "steps")
    for stack, letter in (("decoder", "L"), ("encoder", "E")):
        layers = (trace["lens"] or {}).get(stack)
        if layers is None:
            continue
        _length(layers, sizes[letter] + 1, f"lens.{stack}")
        for layer in layers:
            _length(layer["steps"], sizes["T"], f"lens.{stack}.steps")
    if trace["causes"] is not None:
        _shape(trace["causes"]["hidden"], [sizes["T"], len(trace["source"]["words"])], "causes.hidden")
    if trace["halting"] is not None:
        _shape(trace["halting"]["encoder"], [sizes["E"], sizes["S"]], "halting.encoder")
        _shape(trace["halting"]["decoder"], [sizes["L"], sizes["T"]], "halting.decoder")


def _check_positions(positions: Trace, sizes: Mapping[str, int]) -> None:
    rows, width = positions["rows"], sizes["K" if positions["kind"] == "rotary" else "D"]
    for name, shape in (("code", [rows, width]), ("target_code", [rows, width]), ("similarity", [rows, rows])):
        if positions[name] is not None:
            _shape(positions[name], shape, f"positions.{name}")
    for stack, bias in (positions["bias"] or {}).items():
        _shape(bias, [sizes["H"], rows, rows], f"positions.bias.{stack}")


def _check_walk(trace: Trace, sizes: Mapping[str, int]) -> None:
    family, residual, walk = trace["model"]["family"], trace["model"]["residual"], trace["walk"]
    for stack, letter, tokens in (("encoder", "E", "S"), ("decoder", "L", "T")):
        if walk[stack] is None:
            continue
        where, values = f"walk.{stack}", walk[stack]
        for name, vector in values["start"].items():
            _vector(vector, sizes, "D", tokens, where=f"{where}.start.{name}")
        assert (values["start"]["embedding"] is None) == (family == "vit"), f"{where}.start.embedding"
        assert (values["end"]["norm"] is None) == (residual != "pre"), f"{where}.end.norm"
        assert (values["end"]["mean"] is None) == (family != "universal"), f"{where}.end.mean"
        for name, vector in values["end"].items():
            _vector(vector, sizes, "D", tokens, where=f"{where}.end.{name}")
        _length(values["layers"], sizes[letter], f"{where}.layers")
        has_cross = stack == "decoder" and walk["encoder"] is not None
        for layer in values["layers"]:
            assert ("cross_attention" in layer) == has_cross, f"{where}.layers: cross_attention"
            _check_layer(layer, sizes, tokens, residual, where=f"{where}.layers")


def _check_layer(layer: Trace, sizes: Mapping[str, int], tokens: str, residual: str, *, where: str) -> None:
    _vector(layer["input"], sizes, "D", tokens, where=f"{where}.input")
    for part in ("attention", "cross_attention", "feed_forward"):
        if part not in layer:
            continue
        assert (layer[f"{part}.added"] is None) == (residual == "none"), f"{where}.{part}.added"
        _vector(layer[f"{part}.added"], sizes, "D", tokens, where=f"{where}.{part}.added")
        _vector(layer[f"{part}.norm"], sizes, "D", tokens, where=f"{where}.{part}.norm")
        _vector(layer[part]["out"], sizes, "D", tokens, where=f"{where}.{part}.out")
        keys = "S" if part == "cross_attention" else tokens
        for name, width, *shape in (
            *(("q", "K", "H", tokens), ("k", "K", "H", keys), ("v", "K", "H", keys), ("heads", "K", "H", tokens)),
            *(("inner", "F", tokens), ("gate", "F", tokens), ("activated", "F", tokens)),
        ):
            if name in layer[part]:
                _vector(layer[part][name], sizes, width, *shape, where=f"{where}.{part}.{name}")


def _vector(vector: Any, sizes: Mapping[str, int], width: str, *shape: str, where: str) -> None:
    if vector is None:
        return
    rows = [sizes[letter] for letter in shape]
    _shape(vector["first"], [*rows, min(sizes["n"], sizes[width])], f"{where}.first")
    _shape(vector["norm"], rows, f"{where}.norm")


def _shape(packed: Any, expected: Sequence[int], where: str, *, broadcast: bool = False) -> None:
    try:
        shape = unpack(packed).shape
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from None
    equal = [a == b or (broadcast and a == 1) for a, b in zip(shape, expected, strict=False)]
    if len(shape) != len(expected) or not all(equal):
        raise TraceError(f"{where}: expected the shape {list(expected)}, found {list(shape)}")


def _length(values: Sequence[object], expected: int, where: str) -> None:
    if len(values) != expected:
        raise TraceError(f"{where}: expected {expected} items, found {len(values)}")


def _below(indices: Sequence[int], limit: int, where: str) -> None:
    if any(index >= limit for index in indices):
        raise TraceError(f"{where}: expected indices below {limit}, found {list(indices)}")


def _spans(words: Sequence[Sequence[int]], length: int, where: str) -> None:
    starts, ends = [0, *(end for _, end in words)], [*(first for first, _ in words), length]
    if starts != ends or any(first >= end for first, end in words):
        raise TraceError(f"{where}: words must follow each other from 0 to {length}, found {words}")
