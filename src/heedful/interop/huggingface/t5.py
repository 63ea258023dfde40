"""T5 in Hugging Face's words: `T5ForConditionalGeneration` of version 1.0, and of 1.1 and its kin (Flan-T5).

Up to Transformers 4, `tie_word_embeddings` says both whether the output layer is the embedding and whether its input is
divided by the root of d_model. Transformers 5 writes true there in any case: whether to divide is
`scale_decoder_outputs`, and the output layer is one of its own if the file holds one that differs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heedful.interop.huggingface.config_files import (
    HFConfig,
    prefixes_from,
    prefixes_to,
    special_ids_from,
    special_ids_to,
)
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.t5 import T5Config

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "swish",
    "gated-gelu": "geglu",  # by its history, the GELU through tanh
    "gated-gelu_new": "geglu",
    "gated-silu": "swiglu",
}
GATED = ("geglu", "swiglu")
# Old files have a table for cross-attention, which never was in use.
IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)

ATTENTION = {"to_q": "q", "to_k": "k", "to_v": "v", "to_out": "o"}
PLAIN, GATE = {"inner": "wi", "outer": "wo"}, {"gate": "wi_0", "inner": "wi_1", "outer": "wo"}
SCALED = "scale_decoder_outputs"
EMBEDDING, HEAD = "shared.weight", "lm_head.weight"
EMBEDDING_TOO = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def config_from(values: Mapping[str, Any], *, where: str) -> T5Config:
    given = HFConfig(values, where=where)
    given.architecture("T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel")
    given.require("is_decoder", False)
    config = T5Config(
        vocab_size=given.whole("vocab_size"),
        d_model=given.whole("d_model"),
        n_layers=given.whole("num_layers"),
        n_decoder_layers=given.whole_or_none("num_decoder_layers"),
        n_heads=given.whole("num_heads"),
        d_head=given.whole("d_kv"),
        d_ff=given.whole("d_ff"),
        dropout=given.number("dropout_rate", 0.1),
        activation=given.choice("feed_forward_proj", ACTIVATIONS, "relu"),  # type: ignore[arg-type]
        n_buckets=given.whole("relative_attention_num_buckets", 32),
        max_distance=given.whole("relative_attention_max_distance", 128),
        max_len=given.whole("n_positions", 512),
        norm_eps=given.number("layer_norm_epsilon", 1e-6),
        tied=given.flag("tie_word_embeddings", True),
        scaled=None if given.get(SCALED) is None else given.flag(SCALED),
        special_ids=special_ids_from(given),
        prefixes=prefixes_from(given),
    )
    given.warn_unread(
        ("initializer_factor", "is_encoder_decoder", "dense_act_fn", "is_gated_act", "classifier_dropout",
         "bos_token_id")
    )  # fmt: skip
    return config


def settle(config: T5Config, theirs: Mapping[str, Tensor], *, where: str) -> T5Config:
    """Where Transformers 5 wrote the settings, the tensors alone say whether the output layer is the embedding."""
    if config.scaled is None:
        return config
    head, names = theirs.get(HEAD), (EMBEDDING, *EMBEDDING_TOO)
    embedding = next((theirs[name] for name in names if name in theirs), None)
    tied = head is None or (embedding is not None and torch.equal(head, embedding))
    return replace(config, tied=tied, scaled=None if config.scaled == tied else config.scaled)


def config_to(config: T5Config) -> dict[str, Any]:
    named = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    special_ids = special_ids_to(config.special_ids)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": config.d_head,
        "d_ff": config.d_ff,
        "num_layers": config.n_layers,
        "num_decoder_layers": config.n_decoder_layers or config.n_layers,
        "num_heads": config.n_heads,
        "relative_attention_num_buckets": config.n_buckets,
        "relative_attention_max_distance": config.max_distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm_eps,
        "feed_forward_proj": named[config.activation],
        "n_positions": config.max_len,
        "tie_word_embeddings": config.output_scale != 1.0,  # as Transformers 4 reads it: whether to divide
        SCALED: config.output_scale != 1.0,
        **{name: special_ids[name] for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id")},
        "use_cache": True,
        **prefixes_to(config.prefixes),
    }


def table(config: T5Config) -> list[TensorMap]:
    if config.tied:
        # Without the division, Transformers 4 looks for an output layer: it then is written twice.
        again = (HEAD,) if config.output_scale == 1.0 else ()
        rows = [TensorMap(EMBEDDING, "embedding.table.weight", aliases=(*EMBEDDING_TOO, HEAD), again=again)]
    else:
        rows = [
            TensorMap(EMBEDDING, "embedding.table.weight", aliases=EMBEDDING_TOO),
            TensorMap(HEAD, "head.linear.weight"),
        ]
    depths = {"encoder": config.n_layers, "decoder": config.n_decoder_layers or config.n_layers}
    for stack, depth in depths.items():
        rows.append(TensorMap(f"{stack}.{BIAS}", f"{stack}.bias.table.weight"))
        rows.append(TensorMap(f"{stack}.final_layer_norm.weight", f"{stack}.final_norm.weight"))
        for i in range(depth):
            rows += [
                TensorMap(f"{stack}.block.{i}.{theirs}.weight", f"{stack}.layers.{i}.{ours}.weight")
                for ours, theirs in _layer(config, crosses=stack == "decoder").items()
            ]
    return rows


def _layer(config: T5Config, *, crosses: bool) -> dict[str, str]:
    """Ours -> theirs, within one layer. Their parts are numbered: self-attention, cross-attention, feed-forward."""
    parts = {f"attention.{ours}": f"layer.0.SelfAttention.{theirs}" for ours, theirs in ATTENTION.items()}
    parts["attention_residual.norm"] = "layer.0.layer_norm"
    if crosses:
        parts |= {f"cross_attention.{ours}": f"layer.1.EncDecAttention.{theirs}" for ours, theirs in ATTENTION.items()}
        parts["cross_attention_residual.norm"] = "layer.1.layer_norm"
    last = 2 if crosses else 1
    network = GATE if config.activation in GATED else PLAIN
    parts |= {f"feed_forward.{ours}": f"layer.{last}.DenseReluDense.{theirs}" for ours, theirs in network.items()}
    parts["feed_forward_residual.norm"] = f"layer.{last}.layer_norm"
    return parts
