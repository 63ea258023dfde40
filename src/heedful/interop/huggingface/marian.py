"""Marian (OPUS-MT) and Pegasus as heedful's Transformer, the family `seq2seq`.

Both have the architecture of the 2017 paper: sinusoidal positions, embeddings times the square root of d_model. Marian
normalises after each residual; Pegasus before each sublayer and once more at the end of each stack.

Their sinusoidal code has all sines first, then all cosines; the paper's alternates. The order of the d_model components
does not matter as long as all weights agree. So a model with the paper's order is exported by permuting that axis of
every weight, and computes the same.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    HFConfig,
    hf_activation,
    read_generation_config,
    read_special_ids,
    warn_of_prefixes,
    write_generation_config,
    write_special_ids,
)
from heedful.interop.huggingface.model_type import ModelType
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.seq2seq import Seq2SeqConfig
from heedful.nn.positions import sinusoidal_code
from heedful.text import Tokenizers

MIN_POSITIONS = 1024  # rows of the exported table of positions; heedful computes positions without a limit

LOGITS_BIAS = "final_logits_bias"
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
IGNORED = (LOGITS_BIAS, *(name.replace(".", r"\.") for name in POSITION_TABLES))

Tied = Literal["all", "target", "none"]


class MarianType(ModelType):
    """Marian: post-norm, with one vocabulary or two, tied in any way."""

    family = "seq2seq"
    ignored = IGNORED

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> Seq2SeqConfig:
        hf = HFConfig(values, where=where)
        hf.require_architecture("MarianMTModel", "MarianModel")
        for name in ("normalize_before", "add_final_layer_norm"):
            hf.require(name, False)
        target_vocab_size = hf.get_int("decoder_vocab_size", hf.get_int("vocab_size"))
        return _read_sizes(hf, target_vocab_size=target_vocab_size, residual="post", tied=_read_tied(hf))

    def config_to_hf(self, config: Seq2SeqConfig) -> dict[str, Any]:
        if config.residual != "post":
            raise UserError(
                f"residual = '{config.residual}': Marian normalises after each residual, and has no final norm"
            )
        _refuse_unsupported("Marian", config)
        return {
            "architectures": ["MarianMTModel"],
            "decoder_vocab_size": config.target_vocab_size,
            "share_encoder_decoder_embeddings": config.tied == "all",
            "tie_word_embeddings": config.tied != "none",
            "normalize_before": False,
            **_write_sizes(config),
        }

    def tensor_map(self, config: Seq2SeqConfig) -> list[TensorMap]:
        return _shared_rows(config)

    def infer_from_weights(self, config: Seq2SeqConfig, tensors: Mapping[str, Tensor], *, where: str) -> Seq2SeqConfig:
        return _infer_bias(config, tensors, where=where)

    def infer_from_files(self, config: Seq2SeqConfig, folder: Path, tokenizers: Tokenizers | None) -> Seq2SeqConfig:
        new_config: Seq2SeqConfig = read_generation_config(config, folder, tokenizers)
        return new_config

    def write_extra_files(self, config: Seq2SeqConfig, folder: Path) -> None:
        write_generation_config(config, folder)


class PegasusType(ModelType):
    """Pegasus: pre-norm with a final norm, and one matrix for both embeddings and the output."""

    family = "seq2seq"
    ignored = IGNORED

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> Seq2SeqConfig:
        hf = HFConfig(values, where=where)
        hf.require_architecture("PegasusForConditionalGeneration", "PegasusModel")
        for name in ("normalize_before", "add_final_layer_norm", "tie_word_embeddings"):
            hf.require(name, True)
        return _read_sizes(hf, target_vocab_size=hf.get_int("vocab_size"), residual="pre", tied="all")

    def config_to_hf(self, config: Seq2SeqConfig) -> dict[str, Any]:
        if config.residual != "pre":
            raise UserError(f"residual = '{config.residual}': Pegasus normalises before each part")
        if config.tied != "all":
            raise UserError(
                f"tied = '{config.tied}': Pegasus has one matrix for both sides and the output; train with one "
                "vocabulary (tokenizer.joint = true), or with model.residual = 'post' for Marian"
            )
        _refuse_unsupported("Pegasus", config)
        return {
            "architectures": ["PegasusForConditionalGeneration"],
            "tie_word_embeddings": True,
            "normalize_before": True,
            "add_final_layer_norm": True,
            **_write_sizes(config),
        }

    def tensor_map(self, config: Seq2SeqConfig) -> list[TensorMap]:
        order = _permutation(config)
        final_norms = [
            TensorMap(f"model.{side}.layer_norm.{part}", f"{side}.final_norm.{part}", order=order)
            for side in ("encoder", "decoder")
            for part in ("weight", "bias")
        ]
        return [*_shared_rows(config), *final_norms]

    def infer_from_weights(self, config: Seq2SeqConfig, tensors: Mapping[str, Tensor], *, where: str) -> Seq2SeqConfig:
        return _infer_bias(config, tensors, where=where)

    def infer_from_files(self, config: Seq2SeqConfig, folder: Path, tokenizers: Tokenizers | None) -> Seq2SeqConfig:
        new_config: Seq2SeqConfig = read_generation_config(config, folder, tokenizers)
        return new_config

    def constant_tensors(self, config: Seq2SeqConfig) -> dict[str, Tensor]:
        """Return the sinusoids. Pegasus computes them, too, but warns of missing weights without them."""
        positions = torch.arange(_write_sizes(config)["max_position_embeddings"])
        code = sinusoidal_code(positions, config.d_model, layout="halves")
        return {name: code.clone() for name in POSITION_TABLES}

    def write_extra_files(self, config: Seq2SeqConfig, folder: Path) -> None:
        write_generation_config(config, folder)


def _refuse_unsupported(name: str, config: Seq2SeqConfig) -> None:
    """Raise a UserError for what neither Marian nor Pegasus computes; `name` is the model type in the message."""
    d_head = config.d_head or config.d_model // config.n_heads
    reasons = {
        f"norm = '{config.norm}': {name} has layer norms": config.norm != "layer",
        f"positions = '{config.positions}': {name} computes sinusoidal ones": (
            config.positions not in ("sinusoidal", "sinusoidal_halves")
        ),
        f"activation = '{config.activation}': {name} has no gated feed-forward": (
            config.activation not in ACTIVATIONS.values()
        ),
        f"pattern '{config.pattern.kind}': {name} attends to everything": config.pattern.kind != "full",
        f"join = '{config.join}': {name}'s decoder reads the last encoder layer": config.join != "last",
        f"n_kv_heads: {name} has as many key as query heads": config.n_kv_heads not in (None, config.n_heads),
        f"d_head = {d_head}: {name}'s heads share d_model among them": d_head * config.n_heads != config.d_model,
        f"special_ids.source_bos: {name} puts nothing before a source": config.special_ids.source_bos,
        f"init = 't5': {name} divides scores by the square root of d_head, this model does not": config.init == "t5",
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(reason)


def _read_sizes(hf: HFConfig, **settings: Any) -> Seq2SeqConfig:
    """Return the config from the keys that Marian and Pegasus have in common, and `settings` of heedful's."""
    if not hf.get_bool("scale_embedding", False):
        raise UserError(
            f"{hf.where}: 'scale_embedding' is not true: heedful multiplies embeddings by the square root of d_model"
        )
    hf.require("static_position_embeddings", True)
    for name in ("normalize_embedding", "is_decoder"):
        hf.require(name, False)
    for name in ("attention_heads", "ffn_dim"):
        hf.require_equal(f"encoder_{name}", f"decoder_{name}")
    config = Seq2SeqConfig(
        source_vocab_size=hf.get_int("vocab_size"),
        d_model=hf.get_int("d_model"),
        n_layers=hf.get_int("encoder_layers"),
        n_decoder_layers=hf.get_int("decoder_layers"),
        n_heads=hf.get_int("encoder_attention_heads"),
        d_ff=hf.get_int("encoder_ffn_dim"),
        dropout=hf.get_float("dropout", 0.0),
        attention_dropout=hf.get_float("attention_dropout", 0.0),
        activation=hf.get_choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        positions="sinusoidal_halves",
        max_len=hf.get_int("max_position_embeddings", MIN_POSITIONS),
        special_ids=read_special_ids(hf),
        **settings,
    )
    warn_of_prefixes(hf)
    hf.warn_unused(
        ("init_std", "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout",
         "num_hidden_layers", "is_encoder_decoder", "add_bias_logits", "bos_token_id", "activation_dropout",
         "extra_pos_embeddings")  # in the first OPUS-MT folders; no code reads it any more
    )  # fmt: skip
    return config


def _write_sizes(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return the values of config.json that Marian and Pegasus have in common."""
    sides = {
        "layers": (config.n_layers, config.n_decoder_layers or config.n_layers),
        "attention_heads": (config.n_heads, config.n_heads),
        "ffn_dim": (config.d_ff, config.d_ff),
        "layerdrop": (0.0, 0.0),
    }
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size,
        "d_model": config.d_model,
        **{f"encoder_{name}": encoder for name, (encoder, _) in sides.items()},
        **{f"decoder_{name}": decoder for name, (_, decoder) in sides.items()},
        "activation_function": hf_activation(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_embedding": False,
        "max_position_embeddings": max(MIN_POSITIONS, config.max_len),
        **write_special_ids(config.special_ids),
        "use_cache": True,
    }


def _read_tied(hf: HFConfig) -> Tied:
    shared, tied = (hf.get_bool(name, True) for name in ("share_encoder_decoder_embeddings", "tie_word_embeddings"))
    if shared and not tied:
        raise UserError(
            f"{hf.where}: the embeddings of both sides are shared, but the output layer is not tied to them; heedful "
            "supports only tied ones then"
        )
    return "all" if shared else "target" if tied else "none"


class Part(NamedTuple):
    name: str  # heedful's
    hf_name: str
    axis: int  # of its weight, with length d_model; a bias runs along axis 0 of its weight


ATTENTION = (
    Part("to_q", "q_proj", 1),
    Part("to_k", "k_proj", 1),
    Part("to_v", "v_proj", 1),
    Part("to_out", "out_proj", 0),
)
LAYER = (
    *(Part(f"attention.{part.name}", f"self_attn.{part.hf_name}", part.axis) for part in ATTENTION),
    Part("attention_residual.norm", "self_attn_layer_norm", 0),
    Part("feed_forward.inner", "fc1", 1),
    Part("feed_forward.outer", "fc2", 0),
    Part("feed_forward_residual.norm", "final_layer_norm", 0),
)
CROSS_ATTENTION = (
    *(Part(f"cross_attention.{part.name}", f"encoder_attn.{part.hf_name}", part.axis) for part in ATTENTION),
    Part("cross_attention_residual.norm", "encoder_attn_layer_norm", 0),
)
# setting `tied` -> heedful's matrices and their names in a checkpoint, which may use any of the names of a tied matrix
EMBEDDINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {
        "source_embedding.table.weight": (
            "model.shared.weight",
            "lm_head.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        )
    },
    "target": {
        "source_embedding.table.weight": ("model.encoder.embed_tokens.weight",),
        "target_embedding.table.weight": ("model.decoder.embed_tokens.weight", "lm_head.weight"),
    },
    "none": {
        "source_embedding.table.weight": ("model.encoder.embed_tokens.weight",),
        "target_embedding.table.weight": ("model.decoder.embed_tokens.weight",),
        "head.linear.weight": ("lm_head.weight",),
    },
}


def _shared_rows(config: Seq2SeqConfig) -> list[TensorMap]:
    """Return the rows that Marian and Pegasus have in common: all but Pegasus' final norms."""
    order = _permutation(config)
    rows = [
        TensorMap(hf_names[0], name, axis=1, aliases=hf_names[1:], order=order)
        for name, hf_names in EMBEDDINGS[config.tied].items()
    ]
    if config.logits_bias:
        rows.append(TensorMap(LOGITS_BIAS, "head.linear.bias", unsqueeze=True))
    stacks = (
        ("encoder", config.n_layers, LAYER),
        ("decoder", config.n_decoder_layers or config.n_layers, LAYER + CROSS_ATTENTION),
    )
    for stack, n_layers, parts in stacks:
        for i in range(n_layers):
            for part in parts:
                name, hf_name = f"{stack}.layers.{i}.{part.name}", f"model.{stack}.layers.{i}.{part.hf_name}"
                rows.append(TensorMap(f"{hf_name}.weight", f"{name}.weight", axis=part.axis, order=order))
                rows.append(TensorMap(f"{hf_name}.bias", f"{name}.bias", order=order if part.axis == 0 else ()))
    return rows


def _infer_bias(config: Seq2SeqConfig, tensors: Mapping[str, Tensor], *, where: str) -> Seq2SeqConfig:
    """Return the config with a bias on the logits if the checkpoint has one that is not zero.

    Stored tables of positions must hold the sinusoids that heedful computes.
    """
    for name in POSITION_TABLES:
        if name in tensors:
            stored, rounding = tensors[name].double(), 2**-8 if tensors[name].dtype == torch.bfloat16 else 0.0
            expected = sinusoidal_code(torch.arange(len(stored)), config.d_model, layout="halves")
            if stored.shape != expected.shape or (stored - expected).abs().max() > 1e-3 + rounding:
                raise UserError(f"{where}: '{name}' holds positions other than the sinusoids that heedful computes")
    bias = tensors.get(LOGITS_BIAS)
    return config if bias is None or not bias.any() else dataclasses.replace(config, logits_bias=True)


def _permutation(config: Seq2SeqConfig) -> tuple[int, ...]:
    """Return the order of the d_model axis that puts all sines first, or () if it has that order already."""
    return (*range(0, config.d_model, 2), *range(1, config.d_model, 2)) if config.positions == "sinusoidal" else ()
