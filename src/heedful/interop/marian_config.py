"""A Transformer's settings in Hugging Face's words for Marian, and back; what has no word there, and why."""

from collections.abc import Mapping
from typing import Any, Literal

import torch

from heedful.config import from_values
from heedful.errors import UserError
from heedful.models.seq2seq import Seq2SeqConfig
from heedful.text import SPECIAL

# Ours -> theirs.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "swish": "swish"}
# What other names theirs goes by.
ALIASES = {"silu": "swish", "gelu_new": "gelu_pytorch_tanh"}
FEWEST_POSITIONS = 1024  # rows of Marian's table of positions, where heedful's sinusoids know no last one

Tied = Literal["all", "target", "none"]


def why_not(config: Seq2SeqConfig) -> str | None:
    """Why Marian cannot compute what such a model computes; None if it can."""
    d_head = config.d_head or config.d_model // config.n_heads
    refusals = {
        f"residual = '{config.residual}': Marian normalises after each residual, and has no final norm": (
            config.residual != "post"
        ),
        f"norm = '{config.norm}': Marian has layer norms": config.norm != "layer",
        f"positions = '{config.positions}': Marian computes sinusoidal ones": (
            config.positions not in ("sinusoidal", "sinusoidal_halves")
        ),
        f"activation = '{config.activation}': Marian has no gated feed-forward": config.activation not in ACTIVATIONS,
        f"pattern '{config.pattern.kind}': Marian attends to everything": config.pattern.kind != "full",
        f"join = '{config.join}': Marian's decoder reads the last encoder layer": config.join != "last",
        "n_kv_heads: Marian has as many key as query heads": config.n_kv_heads not in (None, config.n_heads),
        f"d_head = {d_head}: Marian's heads share d_model among them": d_head * config.n_heads != config.d_model,
        "init = 't5': such a model does without the division by the root of d_head": config.init == "t5",
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


def marian_config(config: Seq2SeqConfig, *, precision: torch.dtype) -> dict[str, Any]:
    """The values of Hugging Face's config.json."""
    sides = {
        "layers": (config.n_layers, config.n_decoder_layers or config.n_layers),
        "attention_heads": (config.n_heads, config.n_heads),
        "ffn_dim": (config.d_ff, config.d_ff),
        "layerdrop": (0.0, 0.0),
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "dtype": str(precision).removeprefix("torch."),
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size,
        "decoder_vocab_size": config.target_vocab_size,
        "share_encoder_decoder_embeddings": config.tied == "all",
        "tie_word_embeddings": config.tied != "none",
        "d_model": config.d_model,
        **{f"{side}_{name}": pair[i] for i, side in enumerate(("encoder", "decoder")) for name, pair in sides.items()},
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "max_position_embeddings": max(FEWEST_POSITIONS, config.max_len),
        "pad_token_id": SPECIAL.pad,
        "bos_token_id": SPECIAL.start,
        "eos_token_id": SPECIAL.end,
        "decoder_start_token_id": SPECIAL.start,
        "forced_eos_token_id": None,  # Hugging Face's default would write id 0 at the longest length
        "use_cache": True,
    }


def seq2seq_config(values: Mapping[str, Any], *, where: str) -> Seq2SeqConfig:
    """The settings of a Marian model, or a UserError that names what heedful has no place for."""
    _require(values, where, {"model_type": ("marian",), "scale_embedding": (True,)})
    _require(values, where, {"normalize_before": (False, None), "normalize_embedding": (False, None)})
    ids = {
        "pad_token_id": SPECIAL.pad,
        "eos_token_id": SPECIAL.end,
        "decoder_start_token_id": SPECIAL.start,
    }
    _require(values, where, {name: (number,) for name, number in ids.items()})
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = (_whole(values, f"{side}_{name}", where) for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise UserError(f"{where}: encoder and decoder differ in '{name}' ({encoder} and {decoder})")
    activation = ALIASES.get(str(values.get("activation_function")), str(values.get("activation_function")))
    named = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
    if activation not in named:
        raise UserError(f"{where}: 'activation_function' is {activation!r}; allowed: {', '.join(named)}")
    ours = {
        "source_vocab_size": _whole(values, "vocab_size", where),
        "target_vocab_size": _whole(values, "vocab_size", where),
        "d_model": _whole(values, "d_model", where),
        "n_layers": _whole(values, "encoder_layers", where),
        "n_decoder_layers": _whole(values, "decoder_layers", where),
        "n_heads": _whole(values, "encoder_attention_heads", where),
        "d_ff": _whole(values, "encoder_ffn_dim", where),
        "dropout": values.get("dropout", 0.0),
        "attention_dropout": values.get("attention_dropout", 0.0),
        "activation": named[activation],
        "positions": "sinusoidal_halves",
        "max_len": _whole(values, "max_position_embeddings", where),
        "tied": _tied(values, where),
    }
    if values.get("decoder_vocab_size") is not None:
        ours["target_vocab_size"] = _whole(values, "decoder_vocab_size", where)
    return from_values(Seq2SeqConfig, ours, where=where)


def _tied(values: Mapping[str, Any], where: str) -> Tied:
    shared, tied = (values.get(name, True) for name in ("share_encoder_decoder_embeddings", "tie_word_embeddings"))
    if shared and not tied:
        raise UserError(f"{where}: embeddings that are shared, beside an output layer of its own: heedful has no such")
    return "all" if shared else "target" if tied else "none"


def _require(values: Mapping[str, Any], where: str, allowed: Mapping[str, tuple[object, ...]]) -> None:
    for name, expected in allowed.items():
        if values.get(name) not in expected:
            raise UserError(f"{where}: '{name}' is {values.get(name)!r}; heedful reads {expected[0]!r} only")


def _whole(values: Mapping[str, Any], name: str, where: str) -> int:
    value = values.get(name)
    if type(value) is not int:
        raise UserError(f"{where}: '{name}' should be a whole number, found {value!r}")
    return value
