"""What CTranslate2 needs to know of a model's settings, in the same words for every family. Needs no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heedful.config import config_from_dict
from heedful.text.special_ids import SpecialIds

# CTranslate2's own sinusoids have another form than heedful's, so it gets heedful's as a table of this many rows. That
# is enough for a source of 4,096 tokens and the longest translation that a search allows for it (8,208).
POSITIONS = 8_208
# torch's default epsilon of each norm, which heedful's norms have.
EPSILONS = {"layer": 1e-5, "rms": float(np.finfo(np.float32).eps)}
DECODERS = ("gpt",)  # the families without an encoder


@dataclass(frozen=True)
class RotaryFields:
    """The fields of `models.gpt.RotaryConfig`, whose module imports torch."""

    base: float = 10_000.0
    factor: float = 1.0
    original_max_len: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0


@dataclass(frozen=True)
class Ct2ModelConfig:
    """The settings of a model of any family that CTranslate2 runs."""

    family: str
    source_vocab_size: int
    target_vocab_size: int  # equal to the other one in a decoder-only model
    d_model: int
    n_layers: int
    n_decoder_layers: int
    n_heads: int
    special_ids: SpecialIds
    activation: str
    embedding_scale: float
    n_kv_heads: int | None = None
    d_head: int | None = None
    score_scale: float | None = None  # None: one over the square root of d_head
    norm: str = "layer"
    norm_eps: float = EPSILONS["layer"]
    residual: str = "post"
    positions: str = "learned"
    max_len: int = 0
    max_distance: int = 128  # of relative positions
    output_scale: float = 1.0  # multiplies the decoder's output before the output layer
    scaled_by: str = "head"  # GptConfig.score_scale, in a decoder-only model
    rotary: RotaryFields = field(default_factory=RotaryFields)

    @property
    def n_positions(self) -> int | None:
        """The number of positions of the converted model; None if there is no limit."""
        sizes = {"sinusoidal": POSITIONS, "sinusoidal_halves": POSITIONS, "learned": self.max_len}
        return sizes.get(self.positions)


def read_model_config(values: Mapping[str, Any]) -> Ct2ModelConfig:
    """Return the settings from the values of a model's config.json, which leaves out values of None."""
    return READERS[values["family"]](values, _common(values))


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    names = ("family", "d_model", "n_layers", "n_heads", "activation", "max_len")
    special_ids = config_from_dict(SpecialIds, dict(values["special_ids"]), where="special_ids")
    n_decoder_layers = values.get("n_decoder_layers") or values["n_layers"]
    return {name: values[name] for name in names} | {"special_ids": special_ids, "n_decoder_layers": n_decoder_layers}


def _seq2seq(values: Mapping[str, Any], common: dict[str, Any]) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=values["source_vocab_size"],
        target_vocab_size=values["target_vocab_size"],
        **common,
        n_kv_heads=values.get("n_kv_heads"),
        d_head=values.get("d_head"),
        embedding_scale=values["d_model"] ** 0.5,
        score_scale=1.0 if values["init"] == "t5" else None,
        norm=values["norm"],
        norm_eps=EPSILONS.get(values["norm"], 0.0),
        residual=values["residual"],
        positions=values["positions"],
    )


def _bart(values: Mapping[str, Any], common: dict[str, Any]) -> Ct2ModelConfig:
    scale = values["d_model"] ** 0.5 if values["scaled_embedding"] else 1.0
    size = values["vocab_size"]
    return Ct2ModelConfig(source_vocab_size=size, target_vocab_size=size, **common, embedding_scale=scale)


def _t5(values: Mapping[str, Any], common: dict[str, Any]) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=values["vocab_size"],
        target_vocab_size=values["vocab_size"],
        **common,
        d_head=values.get("d_head"),
        embedding_scale=1.0,
        score_scale=1.0,
        norm="rms",
        norm_eps=values["norm_eps"],
        residual="pre",
        positions="relative",
        max_distance=values["max_distance"],
        output_scale=values["d_model"] ** -0.5 if values.get("scaled", values["tied"]) else 1.0,
    )


def _gpt(values: Mapping[str, Any], common: dict[str, Any]) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=values["vocab_size"],
        target_vocab_size=values["vocab_size"],
        **common,
        n_kv_heads=values.get("n_kv_heads"),
        d_head=values.get("d_head"),
        embedding_scale=1.0,
        norm=values["norm"],
        norm_eps=values["norm_eps"],
        residual="pre",
        positions=values["positions"],
        scaled_by=values["score_scale"],
        rotary=config_from_dict(RotaryFields, dict(values["rotary"]), where="rotary"),
    )


READERS: dict[str, Callable[[Mapping[str, Any], dict[str, Any]], Ct2ModelConfig]] = {
    "seq2seq": _seq2seq,
    "bart": _bart,
    "t5": _t5,
    "gpt": _gpt,
}
