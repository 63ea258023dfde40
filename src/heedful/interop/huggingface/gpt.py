"""GPT-2 and Llama as heedful's decoder-only family `gpt`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.errors import UserError
from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    GATED_ACTIVATIONS,
    GENERATION,
    HFConfig,
    hf_activation,
    read_eos_ids,
    warn_of_search_settings,
    with_ids_of_tokenizer,
)
from heedful.interop.huggingface.model_type import ModelType
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.gpt import GptConfig, RotaryConfig
from heedful.text import SpecialIds, Tokenizers

GPT2_ACTIVATIONS = {"gelu_new": "gelu_tanh", **ACTIVATIONS}  # the first name is the one to write
# (scale_attn_weights, scale_attn_by_inverse_layer_idx) -> heedful's score_scale
GPT2_SCORE_SCALES = {
    (True, False): "head",
    (True, True): "head_and_layer",
    (False, True): "layer",
    (False, False): "none",
}
# About heads that heedful does not read, about rounding in attention, or implied by other keys.
GPT2_HARMLESS = (
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "reorder_and_upcast_attn", "n_ctx", "initializer_range", "gradient_checkpointing", "vocab_size_or_config_json_file",
    "pad_token_id",
)  # fmt: skip
LLAMA_HARMLESS = (
    "initializer_range", "pretraining_tp", "pad_token_id", "rope_theta", "rope_scaling", "max_sequence_length",
)  # fmt: skip
ROPE_THETA = 10_000.0  # the default


class Gpt2Type(ModelType):
    """GPT-2: learned positions, layer norm, biases, no gates."""

    family = "gpt"
    prefix = "transformer."
    ignored = (r"transformer\.h\.\d+\.attn\.(masked_)?bias",)  # masks, stored in older checkpoints

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> GptConfig:
        hf = HFConfig(values, where=where)
        hf.require_architecture("GPT2LMHeadModel", "GPT2Model")
        hf.require("add_cross_attention", False)
        scales = (hf.get_bool("scale_attn_weights", True), hf.get_bool("scale_attn_by_inverse_layer_idx", False))
        d_model = hf.get_int("n_embd", 768)
        dropout = hf.get_float("resid_pdrop", 0.1)
        hf.get("embd_pdrop")  # heedful has one dropout for both
        config = GptConfig(
            vocab_size=hf.get_int("vocab_size", 50257),
            d_model=d_model,
            n_layers=hf.get_int("n_layer", 12),
            n_heads=hf.get_int("n_head", 12),
            d_ff=hf.get_optional_int("n_inner") or 4 * d_model,
            dropout=dropout,
            attention_dropout=hf.get_float("attn_pdrop", 0.1),
            activation=hf.get_choice("activation_function", GPT2_ACTIVATIONS, "gelu_new"),  # type: ignore[arg-type]
            norm_eps=hf.get_float("layer_norm_epsilon", 1e-5),
            max_len=hf.get_int("n_positions", 1024),
            score_scale=GPT2_SCORE_SCALES[scales],  # type: ignore[arg-type]
            tied=hf.get_bool("tie_word_embeddings", True),
            special_ids=_read_special_ids(hf, bos_id=50256, eos_id=50256),
        )
        hf.warn_unused(GPT2_HARMLESS)
        return config

    def config_to_hf(self, config: GptConfig) -> dict[str, Any]:
        reasons = {
            f"positions = '{config.positions}': GPT-2's are learned": config.positions != "learned",
            f"norm = '{config.norm}': GPT-2 has layer norms": config.norm != "layer",
            f"activation = '{config.activation}': GPT-2 has no gates": config.activation not in ACTIVATIONS.values(),
            "n_kv_heads: GPT-2 has as many key as query heads": config.n_kv_heads not in (None, config.n_heads),
            f"d_head = {config.d_head}: GPT-2's heads share d_model among them": (
                config.head_width * config.n_heads != config.d_model
            ),
            "attention_bias, feed_forward_bias: GPT-2 has both": (
                not (config.attention_bias and config.feed_forward_bias)
            ),
        }
        _raise_first(reasons)
        by_head, by_layer = next(theirs for theirs, ours in GPT2_SCORE_SCALES.items() if ours == config.score_scale)
        return {
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": config.vocab_size,
            "n_embd": config.d_model,
            "n_layer": config.n_layers,
            "n_head": config.n_heads,
            "n_inner": config.d_ff,
            "n_positions": config.max_len,
            "activation_function": hf_activation(config.activation, GPT2_ACTIVATIONS),
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "layer_norm_epsilon": config.norm_eps,
            "scale_attn_weights": by_head,
            "scale_attn_by_inverse_layer_idx": by_layer,
            "tie_word_embeddings": config.tied,
            **_write_special_ids(config.special_ids),
        }

    def tensor_map(self, config: GptConfig) -> list[TensorMap]:
        aliases = ("lm_head.weight",) if config.tied else ()
        rows = [
            TensorMap("transformer.wte.weight", "embedding.table.weight", aliases=aliases),
            TensorMap("transformer.wpe.weight", "positions.table.weight"),
            TensorMap("transformer.ln_f.weight", "final_norm.weight"),
            TensorMap("transformer.ln_f.bias", "final_norm.bias"),
        ]
        for i in range(config.n_layers):
            rows += _gpt2_layer(f"transformer.h.{i}", f"layers.{i}")
        return rows if config.tied else [*rows, TensorMap("lm_head.weight", "head.linear.weight")]

    def infer_from_weights(self, config: GptConfig, tensors: Mapping[str, Tensor], *, where: str) -> GptConfig:
        return _require_head(config, tensors, where=where)

    def infer_from_files(self, config: GptConfig, folder: Path, tokenizers: Tokenizers | None) -> GptConfig:
        return _read_generation_config(config, folder, tokenizers)

    def write_extra_files(self, config: GptConfig, folder: Path) -> None:
        _write_generation_config(config, folder)


class LlamaType(ModelType):
    """Llama: rotary positions, RMS norm, gated feed-forward networks."""

    family = "gpt"
    prefix = "model."
    # Inverse frequencies of rotary positions, stored in older checkpoints.
    ignored = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.rotary_emb\.inv_freq")

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> GptConfig:
        hf = HFConfig(values, where=where)
        hf.require_architecture("LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM")  # the last in the first folders
        hf.require("partial_rotary_factor", 1.0, 1)
        config = GptConfig(
            vocab_size=hf.get_int("vocab_size", 32000),
            d_model=hf.get_int("hidden_size", 4096),
            n_layers=hf.get_int("num_hidden_layers", 32),
            n_heads=hf.get_int("num_attention_heads", 32),
            n_kv_heads=hf.get_optional_int("num_key_value_heads"),
            d_head=hf.get_optional_int("head_dim"),
            d_ff=hf.get_int("intermediate_size", 11008),
            dropout=0.0,
            attention_dropout=hf.get_float("attention_dropout", 0.0),
            activation=hf.get_choice("hidden_act", GATED_ACTIVATIONS, "silu"),  # type: ignore[arg-type]
            norm="rms",
            norm_eps=hf.get_float("rms_norm_eps", 1e-6),
            positions="rotary",
            rotary=_read_rotary(hf),
            max_len=hf.get_int("max_position_embeddings", 2048),
            attention_bias=hf.get_bool("attention_bias", False),
            feed_forward_bias=hf.get_bool("mlp_bias", False),
            tied=hf.get_bool("tie_word_embeddings", False),
            special_ids=_read_special_ids(hf, bos_id=1, eos_id=2),
        )
        hf.warn_unused(LLAMA_HARMLESS)
        return config

    def config_to_hf(self, config: GptConfig) -> dict[str, Any]:
        reasons = {
            f"positions = '{config.positions}': Llama's are rotary": config.positions != "rotary",
            f"norm = '{config.norm}': Llama's are rms": config.norm != "rms",
            f"activation = '{config.activation}': Llama's are gated": (
                config.activation not in GATED_ACTIVATIONS.values()
            ),
            f"score_scale = '{config.score_scale}': Llama divides by the root of d_head": config.score_scale != "head",
            f"n_heads = {config.n_heads} does not divide d_model = {config.d_model}": (
                config.d_model % config.n_heads != 0
            ),
        }
        _raise_first(reasons)
        return {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads,
            "num_key_value_heads": config.n_kv_heads or config.n_heads,
            "head_dim": config.head_width,
            "intermediate_size": config.d_ff,
            "attention_dropout": config.attention_dropout,
            "hidden_act": hf_activation(config.activation, GATED_ACTIVATIONS),
            "rms_norm_eps": config.norm_eps,
            "max_position_embeddings": config.max_len,
            "attention_bias": config.attention_bias,
            "mlp_bias": config.feed_forward_bias,
            "tie_word_embeddings": config.tied,
            **_write_rotary(config.rotary),
            **_write_special_ids(config.special_ids),
        }

    def tensor_map(self, config: GptConfig) -> list[TensorMap]:
        aliases = ("lm_head.weight",) if config.tied else ()
        rows = [
            TensorMap("model.embed_tokens.weight", "embedding.table.weight", aliases=aliases),
            TensorMap("model.norm.weight", "final_norm.weight"),
        ]
        for i in range(config.n_layers):
            rows += _llama_layer(f"model.layers.{i}", f"layers.{i}", config)
        return rows if config.tied else [*rows, TensorMap("lm_head.weight", "head.linear.weight")]

    def infer_from_weights(self, config: GptConfig, tensors: Mapping[str, Tensor], *, where: str) -> GptConfig:
        return _require_head(config, tensors, where=where)

    def infer_from_files(self, config: GptConfig, folder: Path, tokenizers: Tokenizers | None) -> GptConfig:
        return _read_generation_config(config, folder, tokenizers)

    def write_extra_files(self, config: GptConfig, folder: Path) -> None:
        _write_generation_config(config, folder)


def _raise_first(reasons: Mapping[str, bool]) -> None:
    for reason, applies in reasons.items():
        if applies:
            raise UserError(reason)


def _require_head(config: GptConfig, tensors: Mapping[str, Tensor], *, where: str) -> GptConfig:
    """Raise a UserError for a base model whose output layer is neither tied to the embedding nor in the checkpoint."""
    if not config.tied and "lm_head.weight" not in tensors:
        raise UserError(
            f"{where}: has no 'lm_head.weight', and config.json has 'tie_word_embeddings' false: this is a model "
            "without its output layer. Save it with its head, by the class …LMHeadModel or …ForCausalLM"
        )
    return config


def _read_special_ids(hf: HFConfig, *, bos_id: int, eos_id: int) -> SpecialIds:
    """Return BOS and EOS of config.json or the defaults; of several EOS ids the first is the model's main one."""
    ends = read_eos_ids(hf, eos_id, several=True)
    return SpecialIds(
        unk_id=ends[0],  # config.json does not have it; the tokenizer does
        bos_id=hf.get_int("bos_token_id", bos_id),
        eos_id=ends[0],
        extra_eos_ids=tuple(ends[1:]),
    )


def _write_special_ids(special_ids: SpecialIds) -> dict[str, Any]:
    ends = [special_ids.eos_id, *special_ids.extra_eos_ids]
    return {"bos_token_id": special_ids.bos_id, "eos_token_id": ends if len(ends) > 1 else ends[0]}


def _read_generation_config(config: GptConfig, folder: Path, tokenizers: Tokenizers | None) -> GptConfig:
    """Return the config with the EOS ids that only generation_config.json has, as in Llama 3's chat models.

    An id beyond the embedding is left out, unless it is the only one: the model can never generate it.
    """
    warn_of_search_settings(folder)
    path, special_ids = folder / GENERATION, with_ids_of_tokenizer(config.special_ids, tokenizers)
    ends: Sequence[int] = [special_ids.eos_id, *special_ids.extra_eos_ids]
    if path.is_file():
        hf = HFConfig(read_json(path), where=str(path))
        ends = [*ends, *read_eos_ids(hf, special_ids.eos_id, several=True)]
    end, *others = dict.fromkeys([id for id in ends if id < config.vocab_size] or [special_ids.eos_id])
    return replace(config, special_ids=replace(special_ids, eos_id=end, extra_eos_ids=tuple(others)))


def _write_generation_config(config: GptConfig, folder: Path) -> None:
    write_json(folder / GENERATION, {"_from_model_config": True, **_write_special_ids(config.special_ids)})


def _gpt2_layer(theirs: str, ours: str) -> list[TensorMap]:
    """Return the rows of one layer. GPT-2 keeps matrices as (inputs, outputs), and those of q, k and v as one."""
    projections = tuple(f"{ours}.attention.to_{part}" for part in "qkv")
    rows = [
        TensorMap(f"{theirs}.attn.c_attn.weight", tuple(f"{name}.weight" for name in projections), transposed=True),
        TensorMap(f"{theirs}.attn.c_attn.bias", tuple(f"{name}.bias" for name in projections)),
    ]
    for hf_name, name in (
        ("attn.c_proj", "attention.to_out"),
        ("mlp.c_fc", "feed_forward.inner"),
        ("mlp.c_proj", "feed_forward.outer"),
    ):
        rows.append(TensorMap(f"{theirs}.{hf_name}.weight", f"{ours}.{name}.weight", transposed=True))
        rows.append(TensorMap(f"{theirs}.{hf_name}.bias", f"{ours}.{name}.bias"))
    for hf_name, name in (("ln_1", "attention_residual.norm"), ("ln_2", "feed_forward_residual.norm")):
        rows += [TensorMap(f"{theirs}.{hf_name}.{part}", f"{ours}.{name}.{part}") for part in ("weight", "bias")]
    return rows


def _llama_layer(theirs: str, ours: str, config: GptConfig) -> list[TensorMap]:
    attention = {f"self_attn.{part}_proj": f"attention.to_{part}" for part in "qkv"}
    attention["self_attn.o_proj"] = "attention.to_out"
    network = {"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}
    linears = [(hf_name, name, config.attention_bias) for hf_name, name in attention.items()]
    linears += [(f"mlp.{hf}", f"feed_forward.{name}", config.feed_forward_bias) for hf, name in network.items()]
    rows = [
        TensorMap(f"{theirs}.{hf_name}.{part}", f"{ours}.{name}.{part}")
        for hf_name, name, has_bias in linears
        for part in (("weight", "bias") if has_bias else ("weight",))
    ]
    return [
        *rows,
        TensorMap(f"{theirs}.input_layernorm.weight", f"{ours}.attention_residual.norm.weight"),
        TensorMap(f"{theirs}.post_attention_layernorm.weight", f"{ours}.feed_forward_residual.norm.weight"),
    ]


def _read_rotary(hf: HFConfig) -> RotaryConfig:
    """Read `rope_parameters`, of transformers 5, or `rope_theta` and `rope_scaling`, of earlier versions."""
    values = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    if not isinstance(values, dict):
        raise hf.error("rope_scaling", "a table")
    rope = HFConfig(values, where=f"{hf.where}: rope_parameters")
    kind = rope.get("rope_type", rope.get("type", "default"))
    base = rope.get_float("rope_theta", hf.get_float("rope_theta", ROPE_THETA))
    rope.require("partial_rotary_factor", 1.0, 1)
    if kind == "default":
        return RotaryConfig(base=base)
    if kind == "linear":
        return RotaryConfig(base=base, factor=rope.get_float("factor"))
    if kind != "llama3":
        raise UserError(f"{rope.where}: 'rope_type' is {kind!r}; heedful has: default, linear, llama3")
    return RotaryConfig(
        base=base,
        factor=rope.get_float("factor"),
        original_max_len=rope.get_int("original_max_position_embeddings"),
        low_freq_factor=rope.get_float("low_freq_factor"),
        high_freq_factor=rope.get_float("high_freq_factor"),
    )


def _write_rotary(rotary: RotaryConfig) -> dict[str, Any]:
    """Return the keys for every version: `rope_parameters`, and `rope_theta` with `rope_scaling`."""
    scaling: dict[str, Any] = {}
    if rotary.is_scaled and rotary.original_max_len is None:
        scaling = {"rope_type": "linear", "factor": rotary.factor}
    elif rotary.is_scaled:
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
