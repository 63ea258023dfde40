"""BART: `BartForConditionalGeneration`, and `BartModel`, which has the same weights without an output layer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from heedful.models.bart import BartConfig
from heedful.text import Tokenizers

POSITION_OFFSET = 2  # the first two rows of BART's tables of positions are unused

# heedful's names in a layer -> Hugging Face's
ATTENTION = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
LAYER = {
    **{f"attention.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
CROSS_ATTENTION = {
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}


class BartType(ModelType):
    """BART as heedful's family `bart`."""

    family = "bart"
    prefix = "model."
    ignored = (r"model\.(en|de)coder\.version",)

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> BartConfig:
        hf = HFConfig(values, where=where)
        hf.require_architecture("BartForConditionalGeneration", "BartModel")
        hf.require("tie_word_embeddings", True)
        hf.require("normalize_before", False)
        hf.require("add_final_layer_norm", False)
        hf.require("static_position_embeddings", False)
        hf.require("normalize_embedding", True)
        hf.require("is_decoder", False)
        for name in ("attention_heads", "ffn_dim"):
            hf.require_equal(f"encoder_{name}", f"decoder_{name}")
        config = BartConfig(
            vocab_size=hf.get_int("vocab_size"),
            d_model=hf.get_int("d_model"),
            n_layers=hf.get_int("encoder_layers"),
            n_decoder_layers=hf.get_int("decoder_layers"),
            n_heads=hf.get_int("encoder_attention_heads"),
            d_ff=hf.get_int("encoder_ffn_dim"),
            dropout=hf.get_float("dropout", 0.1),
            attention_dropout=hf.get_float("attention_dropout", 0.0),
            activation_dropout=hf.get_float("activation_dropout", 0.0),
            activation=hf.get_choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
            max_len=hf.get_int("max_position_embeddings"),
            scaled_embedding=hf.get_bool("scale_embedding", False),
            special_ids=read_special_ids(hf, bos_id=hf.get_optional_int("bos_token_id")),
        )
        warn_of_prefixes(hf)
        hf.warn_unused(
            ("init_std", "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout",
             "num_hidden_layers", "extra_pos_embeddings", "is_encoder_decoder", "add_bias_logits",
             "add_cross_attention")
        )  # fmt: skip
        return config

    def config_to_hf(self, config: BartConfig) -> dict[str, Any]:
        sides = {
            "layers": (config.n_layers, config.n_decoder_layers or config.n_layers),
            "attention_heads": (config.n_heads, config.n_heads),
            "ffn_dim": (config.d_ff, config.d_ff),
            "layerdrop": (0.0, 0.0),
        }
        return {
            "architectures": ["BartForConditionalGeneration"],
            "is_encoder_decoder": True,
            "vocab_size": config.vocab_size,
            "d_model": config.d_model,
            **{f"encoder_{name}": encoder for name, (encoder, _) in sides.items()},
            **{f"decoder_{name}": decoder for name, (_, decoder) in sides.items()},
            "activation_function": hf_activation(config.activation),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.activation_dropout,
            "scale_embedding": config.scaled_embedding,
            "max_position_embeddings": config.max_len,
            "tie_word_embeddings": True,
            **write_special_ids(config.special_ids),
            "bos_token_id": config.special_ids.bos_id if config.special_ids.source_bos else None,
            "use_cache": True,
        }

    def tensor_map(self, config: BartConfig) -> list[TensorMap]:
        rows = [
            TensorMap(
                "model.shared.weight",
                "embedding.table.weight",
                aliases=("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
            ),
            TensorMap("final_logits_bias", "head.linear.bias", unsqueeze=True, default_zeros=(config.vocab_size,)),
        ]
        stacks = (
            ("encoder", "source", config.n_layers, LAYER),
            ("decoder", "target", config.n_decoder_layers or config.n_layers, {**LAYER, **CROSS_ATTENTION}),
        )
        for stack, side, n_layers, parts in stacks:
            rows.append(
                TensorMap(
                    f"model.{stack}.embed_positions.weight",
                    f"{side}_positions.table.weight",
                    skip_rows=POSITION_OFFSET,
                )
            )
            rows += [
                TensorMap(f"model.{stack}.layernorm_embedding.{end}", f"{side}_norm.{end}")
                for end in ("weight", "bias")
            ]
            rows += [
                TensorMap(f"model.{stack}.layers.{i}.{theirs}.{end}", f"{stack}.layers.{i}.{ours}.{end}")
                for i in range(n_layers)
                for ours, theirs in parts.items()
                for end in ("weight", "bias")
            ]
        return rows

    def infer_from_files(self, config: BartConfig, folder: Path, tokenizers: Tokenizers | None) -> BartConfig:
        new_config: BartConfig = read_generation_config(config, folder, tokenizers)
        return new_config

    def write_extra_files(self, config: BartConfig, folder: Path) -> None:
        write_generation_config(config, folder)
