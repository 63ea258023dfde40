"""GPT-2's settings and tensors in Hugging Face's words, and back."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.config import read_json
from heedful.errors import UserError
from heedful.interop.huggingface.config_files import GENERATION, HFConfig, warn_of_search, with_ids_of_tokenizer
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.gpt import GptConfig
from heedful.text import SpecialIds, Tokenizers

# Theirs -> ours; of several names for one the first is written.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
# (scale_attn_weights, scale_attn_by_inverse_layer_idx) -> ours
SCALES = {
    (True, False): "head",
    (True, True): "head_and_layer",
    (False, True): "layer",
    (False, False): "none",
}
# Of heads that heedful does not read, of how attention is rounded, and what follows from other keys.
HARMLESS = (
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "reorder_and_upcast_attn", "n_ctx", "initializer_range", "gradient_checkpointing", "vocab_size_or_config_json_file",
    "pad_token_id",
)  # fmt: skip

# The masks that older files hold as numbers.
IGNORED = (r"transformer\.h\.\d+\.attn\.(masked_)?bias",)


def config_from(values: Mapping[str, Any], *, where: str) -> GptConfig:
    read = HFConfig(values, where=where)
    read.architecture("GPT2LMHeadModel", "GPT2Model")
    read.require("add_cross_attention", False)
    scale = (read.flag("scale_attn_weights", True), read.flag("scale_attn_by_inverse_layer_idx", False))
    d_model = read.whole("n_embd", 768)
    dropout = read.number("resid_pdrop", 0.1)
    read.get("embd_pdrop")  # ours is one for both
    config = GptConfig(
        vocab_size=read.whole("vocab_size", 50257),
        d_model=d_model,
        n_layers=read.whole("n_layer", 12),
        n_heads=read.whole("n_head", 12),
        d_ff=read.whole_or_none("n_inner") or 4 * d_model,
        dropout=dropout,
        attention_dropout=read.number("attn_pdrop", 0.1),
        activation=read.choice("activation_function", ACTIVATIONS, "gelu_new"),  # type: ignore[arg-type]
        norm_eps=read.number("layer_norm_epsilon", 1e-5),
        max_len=read.whole("n_positions", 1024),
        score_scale=SCALES[scale],  # type: ignore[arg-type]
        tied=read.flag("tie_word_embeddings", True),
        special_ids=special_ids_from(read, start=50256, end=50256),
    )
    read.warn_unread(HARMLESS)
    return config


def config_to(config: GptConfig) -> dict[str, Any]:
    """The values of Hugging Face's config.json, or a UserError that says why GPT-2 does not compute this."""
    reasons = {
        f"positions = '{config.positions}': GPT-2's are learned": config.positions != "learned",
        f"norm = '{config.norm}': GPT-2 has layer norms": config.norm != "layer",
        f"activation = '{config.activation}': GPT-2 has no gates": config.activation not in ACTIVATIONS.values(),
        "n_kv_heads: GPT-2 has as many key as query heads": config.n_kv_heads not in (None, config.n_heads),
        f"d_head = {config.d_head}: GPT-2's heads share d_model among them": (
            config.width_of_head * config.n_heads != config.d_model
        ),
        "attention_bias, feed_forward_bias: GPT-2 has both": not (config.attention_bias and config.feed_forward_bias),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(reason)
    by_head, by_layer = next(theirs for theirs, ours in SCALES.items() if ours == config.score_scale)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_positions": config.max_len,
        "activation_function": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.norm_eps,
        "scale_attn_weights": by_head,
        "scale_attn_by_inverse_layer_idx": by_layer,
        "tie_word_embeddings": config.tied,
        **special_ids_to(config.special_ids),
    }


def table(config: GptConfig) -> list[TensorMap]:
    rows = [
        TensorMap(
            "transformer.wte.weight", "embedding.table.weight", aliases=("lm_head.weight",) if config.tied else ()
        ),
        TensorMap("transformer.wpe.weight", "positions.table.weight"),
        TensorMap("transformer.ln_f.weight", "final_norm.weight"),
        TensorMap("transformer.ln_f.bias", "final_norm.bias"),
    ]
    for number in range(config.n_layers):
        rows += _layer(f"transformer.h.{number}", f"layers.{number}")
    return rows if config.tied else [*rows, TensorMap("lm_head.weight", "head.linear.weight")]


def _layer(theirs: str, ours: str) -> list[TensorMap]:
    """Matrices are kept as (inputs, outputs) there, and the three of q, k and v as one."""
    projections = tuple(f"{ours}.attention.to_{part}" for part in "qkv")
    rows = [
        TensorMap(f"{theirs}.attn.c_attn.weight", tuple(f"{name}.weight" for name in projections), transposed=True),
        TensorMap(f"{theirs}.attn.c_attn.bias", tuple(f"{name}.bias" for name in projections)),
    ]
    for there, here in (
        ("attn.c_proj", "attention.to_out"),
        ("mlp.c_fc", "feed_forward.inner"),
        ("mlp.c_proj", "feed_forward.outer"),
    ):
        rows.append(TensorMap(f"{theirs}.{there}.weight", f"{ours}.{here}.weight", transposed=True))
        rows.append(TensorMap(f"{theirs}.{there}.bias", f"{ours}.{here}.bias"))
    for there, here in (("ln_1", "attention_residual.norm"), ("ln_2", "feed_forward_residual.norm")):
        rows += [TensorMap(f"{theirs}.{there}.{part}", f"{ours}.{here}.{part}") for part in ("weight", "bias")]
    return rows


def special_ids_from(read: HFConfig, *, start: int, end: int) -> SpecialIds:
    """Start and end; of several ends the first is the model's own, and the others end a text as well."""
    ends = read.get("eos_token_id", end)
    ends = ends if isinstance(ends, list) else [ends]
    if not ends or any(type(one) is not int for one in ends):
        raise read.wrong("eos_token_id", "an id or a list of ids")
    return SpecialIds(
        unk_id=ends[0], bos_id=read.whole("bos_token_id", start), eos_id=ends[0], extra_eos_ids=tuple(ends[1:])
    )


def settle(config: GptConfig, theirs: Mapping[str, Tensor], *, where: str) -> GptConfig:
    """Refuse a base model whose words are written by a matrix that its file does not hold. Of Llama, too."""
    if not config.tied and "lm_head.weight" not in theirs:
        raise UserError(
            f"{where}: has no 'lm_head.weight', and config.json has 'tie_word_embeddings' false: this is a model "
            "without the layer that writes words. Save it with its head, as its class …LMHeadModel or …ForCausalLM does"
        )
    return config


def complete(config: GptConfig, folder: Path, tokenizers: Tokenizers | None) -> GptConfig:
    """Ends that stand in generation_config.json alone, as those of Llama 3's chat models do.

    One that the model has no row for is never written: beside others that it can write it is left out.
    """
    warn_of_search(folder)
    path, special_ids = folder / GENERATION, with_ids_of_tokenizer(config.special_ids, tokenizers)
    ends = [special_ids.eos_id, *special_ids.extra_eos_ids]
    if path.is_file():
        more = special_ids_from(
            HFConfig(read_json(path), where=str(path)), start=special_ids.start_id, end=special_ids.eos_id
        )
        ends += [more.eos_id, *more.extra_eos_ids]
    end, *others = dict.fromkeys([one for one in ends if one < config.vocab_size] or [special_ids.eos_id])
    return replace(config, special_ids=replace(special_ids, eos_id=end, extra_eos_ids=tuple(others)))


def finish_export(config: GptConfig, folder: Path) -> None:
    text = json.dumps({"_from_model_config": True, **special_ids_to(config.special_ids)}, indent=1)
    (folder / GENERATION).write_text(text + "\n", encoding="utf-8")


def special_ids_to(special_ids: SpecialIds) -> dict[str, Any]:
    return {
        "bos_token_id": special_ids.bos_id,
        "eos_token_id": [special_ids.eos_id, *special_ids.extra_eos_ids]
        if special_ids.extra_eos_ids
        else special_ids.eos_id,
    }
