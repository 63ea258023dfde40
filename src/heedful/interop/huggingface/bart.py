"""BART in Hugging Face's words: `BartForConditionalGeneration`, and `BartModel`, which is the same without its head."""

from collections.abc import Mapping
from typing import Any

from heedful.interop.huggingface.config_files import HFConfig, special_ids_from, special_ids_to, warn_of_prefixes
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.bart import BartConfig

ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}
IGNORED = (r"model\.(en|de)coder\.version",)
# A position's row in their tables is two further down than its number: once these were marks.
OFFSET = 2

ATTENTION = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
LAYER = {
    **{f"attention.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
CROSS = {
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}


def config_from(values: Mapping[str, Any], *, where: str) -> BartConfig:
    given = HFConfig(values, where=where)
    given.architecture("BartForConditionalGeneration", "BartModel")
    given.require("tie_word_embeddings", True)
    given.require("normalize_before", False)
    given.require("add_final_layer_norm", False)
    given.require("static_position_embeddings", False)
    given.require("normalize_embedding", True)
    given.require("is_decoder", False)
    for name in ("attention_heads", "ffn_dim"):
        given.same(f"encoder_{name}", f"decoder_{name}")
    config = BartConfig(
        vocab_size=given.whole("vocab_size"),
        d_model=given.whole("d_model"),
        n_layers=given.whole("encoder_layers"),
        n_decoder_layers=given.whole("decoder_layers"),
        n_heads=given.whole("encoder_attention_heads"),
        d_ff=given.whole("encoder_ffn_dim"),
        dropout=given.number("dropout", 0.1),
        attention_dropout=given.number("attention_dropout", 0.0),
        activation_dropout=given.number("activation_dropout", 0.0),
        activation=given.choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        max_len=given.whole("max_position_embeddings"),
        scaled_embedding=given.flag("scale_embedding", False),
        special_ids=special_ids_from(given, bos_id=given.whole_or_none("bos_token_id")),
    )
    warn_of_prefixes(given)
    given.warn_unread(
        ("init_std", "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout",
         "num_hidden_layers", "extra_pos_embeddings", "is_encoder_decoder", "add_bias_logits", "add_cross_attention")
    )  # fmt: skip
    return config


def config_to(config: BartConfig) -> dict[str, Any]:
    sides = {
        "layers": (config.n_layers, config.n_decoder_layers or config.n_layers),
        "attention_heads": (config.n_heads, config.n_heads),
        "ffn_dim": (config.d_ff, config.d_ff),
        "layerdrop": (0.0, 0.0),
    }
    named = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "architectures": ["BartForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        **{f"{side}_{name}": pair[i] for i, side in enumerate(("encoder", "decoder")) for name, pair in sides.items()},
        "activation_function": named[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scaled_embedding,
        "max_position_embeddings": config.max_len,
        "tie_word_embeddings": True,
        **special_ids_to(config.special_ids),
        "bos_token_id": config.special_ids.bos_id if config.special_ids.source_bos else None,
        "use_cache": True,
    }


def table(config: BartConfig) -> list[TensorMap]:
    rows = [
        TensorMap(
            "model.shared.weight",
            "embedding.table.weight",
            aliases=("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
        ),
        TensorMap("final_logits_bias", "head.linear.bias", wrapped=True, or_zeros=(config.vocab_size,)),
    ]
    stacks = (
        ("encoder", "source", config.n_layers, LAYER),
        ("decoder", "target", config.n_decoder_layers or config.n_layers, {**LAYER, **CROSS}),
    )
    for stack, side, n_layers, parts in stacks:
        rows.append(TensorMap(f"model.{stack}.embed_positions.weight", f"{side}_positions.table.weight", skip=OFFSET))
        rows += [
            TensorMap(f"model.{stack}.layernorm_embedding.{end}", f"{side}_norm.{end}") for end in ("weight", "bias")
        ]
        rows += [
            TensorMap(f"model.{stack}.layers.{i}.{theirs}.{end}", f"{stack}.layers.{i}.{ours}.{end}")
            for i in range(n_layers)
            for ours, theirs in parts.items()
            for end in ("weight", "bias")
        ]
    return rows
