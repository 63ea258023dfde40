"""Llama's settings and tensors in Hugging Face's words, and back."""

from collections.abc import Mapping
from typing import Any

from heedful.errors import UserError
from heedful.interop.huggingface.config_files import HFConfig
from heedful.interop.huggingface.gpt2 import special_ids_from, special_ids_to
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.gpt import GptConfig, RotaryConfig

# Theirs -> ours; of several names for one the first is written.
ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}
BASE = 10_000.0
HARMLESS = ("initializer_range", "pretraining_tp", "pad_token_id", "rope_theta", "rope_scaling", "max_sequence_length")

# The wavelengths that older files hold as numbers.
IGNORED = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.rotary_emb\.inv_freq")


def config_from(values: Mapping[str, Any], *, where: str) -> GptConfig:
    read = HFConfig(values, where=where)
    read.architecture("LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM")  # the last in the first folders
    read.require("partial_rotary_factor", 1.0, 1)
    d_model, n_heads = read.whole("hidden_size", 4096), read.whole("num_attention_heads", 32)
    config = GptConfig(
        vocab_size=read.whole("vocab_size", 32000),
        d_model=d_model,
        n_layers=read.whole("num_hidden_layers", 32),
        n_heads=n_heads,
        n_kv_heads=read.whole_or_none("num_key_value_heads"),
        d_head=read.whole_or_none("head_dim"),
        d_ff=read.whole("intermediate_size", 11008),
        dropout=0.0,
        attention_dropout=read.number("attention_dropout", 0.0),
        activation=read.choice("hidden_act", ACTIVATIONS, "silu"),  # type: ignore[arg-type]
        norm="rms",
        norm_eps=read.number("rms_norm_eps", 1e-6),
        positions="rotary",
        rotary=_rotary_from(read),
        max_len=read.whole("max_position_embeddings", 2048),
        attention_bias=read.flag("attention_bias", False),
        feed_forward_bias=read.flag("mlp_bias", False),
        tied=read.flag("tie_word_embeddings", False),
        special_ids=special_ids_from(read, start=1, end=2),
    )
    read.warn_unread(HARMLESS)
    return config


def config_to(config: GptConfig) -> dict[str, Any]:
    """The values of Hugging Face's config.json, or a UserError that says why Llama does not compute this."""
    reasons = {
        f"positions = '{config.positions}': Llama's are rotary": config.positions != "rotary",
        f"norm = '{config.norm}': Llama's are rms": config.norm != "rms",
        f"activation = '{config.activation}': Llama's are gated": config.activation not in ACTIVATIONS.values(),
        f"score_scale = '{config.score_scale}': Llama divides by the root of d_head": config.score_scale != "head",
        f"n_heads = {config.n_heads} does not divide d_model = {config.d_model}": config.d_model % config.n_heads != 0,
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(reason)
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads or config.n_heads,
        "head_dim": config.width_of_head,
        "intermediate_size": config.d_ff,
        "attention_dropout": config.attention_dropout,
        "hidden_act": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation),
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_len,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.feed_forward_bias,
        "tie_word_embeddings": config.tied,
        **_rotary_to(config.rotary),
        **special_ids_to(config.special_ids),
    }


def table(config: GptConfig) -> list[TensorMap]:
    aliases = ("lm_head.weight",) if config.tied else ()
    rows = [
        TensorMap("model.embed_tokens.weight", "embedding.table.weight", aliases=aliases),
        TensorMap("model.norm.weight", "final_norm.weight"),
    ]
    for number in range(config.n_layers):
        rows += _layer(f"model.layers.{number}", f"layers.{number}", config)
    return rows if config.tied else [*rows, TensorMap("lm_head.weight", "head.linear.weight")]


def _layer(theirs: str, ours: str, config: GptConfig) -> list[TensorMap]:
    attention = {f"self_attn.{part}_proj": f"attention.to_{part}" for part in "qkv"}
    attention["self_attn.o_proj"] = "attention.to_out"
    network = {"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}
    linears = [(there, here, config.attention_bias) for there, here in attention.items()]
    linears += [(f"mlp.{there}", f"feed_forward.{here}", config.feed_forward_bias) for there, here in network.items()]
    rows = [
        TensorMap(f"{theirs}.{there}.{part}", f"{ours}.{here}.{part}")
        for there, here, has_bias in linears
        for part in (("weight", "bias") if has_bias else ("weight",))
    ]
    return [
        *rows,
        TensorMap(f"{theirs}.input_layernorm.weight", f"{ours}.attention_residual.norm.weight"),
        TensorMap(f"{theirs}.post_attention_layernorm.weight", f"{ours}.feed_forward_residual.norm.weight"),
    ]


def _rotary_from(read: HFConfig) -> RotaryConfig:
    """`rope_parameters` since transformers 5; before, `rope_theta` and, for stretched ones, `rope_scaling`."""
    given = read.get("rope_parameters") or read.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise read.wrong("rope_scaling", "a table")
    rope = HFConfig(given, where=f"{read.where}: rope_parameters")
    kind = rope.get("rope_type", rope.get("type", "default"))
    base = rope.number("rope_theta", read.number("rope_theta", BASE))
    rope.require("partial_rotary_factor", 1.0, 1)
    if kind == "default":
        return RotaryConfig(base=base)
    if kind == "linear":
        return RotaryConfig(base=base, factor=rope.number("factor"))
    if kind != "llama3":
        raise UserError(f"{rope.where}: 'rope_type' is {kind!r}, and heedful has only: default, linear, llama3")
    return RotaryConfig(
        base=base,
        factor=rope.number("factor"),
        original_max_len=rope.whole("original_max_position_embeddings"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
    )


def _rotary_to(rotary: RotaryConfig) -> dict[str, Any]:
    """As both read it: `rope_parameters` since transformers 5, `rope_theta` and `rope_scaling` before."""
    scaling: dict[str, Any] = {}
    if rotary.scaling is not None and rotary.original_max_len is None:
        scaling = {"rope_type": "linear", "factor": rotary.factor}
    elif rotary.scaling is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": rotary.factor,
            "original_max_position_embeddings": rotary.original_max_len,
            "low_freq_factor": rotary.low_freq_factor,
            "high_freq_factor": rotary.high_freq_factor,
        }
    return {"rope_parameters": {"rope_type": "default", **scaling, "rope_theta": rotary.base}} | {
        "rope_theta": rotary.base,
        "rope_scaling": scaling or None,
    }
