"""T5: `T5ForConditionalGeneration` of version 1.0, and of 1.1 and its relatives (Flan-T5).

Up to Transformers 4, `tie_word_embeddings` means both that the output layer is the embedding and that its input is
divided by the square root of d_model. Transformers 5 always writes true there: `scale_decoder_outputs` tells whether to
divide, and the output layer is tied unless the weights hold one that differs from the embedding.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    HFConfig,
    hf_activation,
    read_generation_config,
    read_prefixes,
    read_special_ids,
    write_generation_config,
    write_prefixes,
    write_special_ids,
)
from heedful.interop.huggingface.model_type import ModelType
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.t5 import T5Config
from heedful.text import Tokenizers

FEED_FORWARDS = {
    "gelu_new": "gelu_tanh",  # first: the name to write
    **ACTIVATIONS,
    "gated-gelu": "geglu",  # for historical reasons the approximation by tanh
    "gated-gelu_new": "geglu",
    "gated-silu": "swiglu",
}
GATED = ("geglu", "swiglu")

ATTENTION = {"to_q": "q", "to_k": "k", "to_v": "v", "to_out": "o"}
PLAIN_NETWORK = {"inner": "wi", "outer": "wo"}
GATED_NETWORK = {"gate": "wi_0", "inner": "wi_1", "outer": "wo"}
SCALED = "scale_decoder_outputs"
EMBEDDING, HEAD = "shared.weight", "lm_head.weight"
EMBEDDING_ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"


class T5Type(ModelType):
    """T5 as heedful's family `t5`."""

    family = "t5"
    # Old checkpoints have a table of relative positions for cross-attention, which was never used.
    ignored = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> T5Config:
        hf = HFConfig(values, where=where)
        hf.require_architecture("T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel")
        hf.require("is_decoder", False)
        config = T5Config(
            vocab_size=hf.get_int("vocab_size"),
            d_model=hf.get_int("d_model"),
            n_layers=hf.get_int("num_layers"),
            n_decoder_layers=hf.get_optional_int("num_decoder_layers"),
            n_heads=hf.get_int("num_heads"),
            d_head=hf.get_int("d_kv"),
            d_ff=hf.get_int("d_ff"),
            dropout=hf.get_float("dropout_rate", 0.1),
            activation=hf.get_choice("feed_forward_proj", FEED_FORWARDS, "relu"),  # type: ignore[arg-type]
            n_buckets=hf.get_int("relative_attention_num_buckets", 32),
            max_distance=hf.get_int("relative_attention_max_distance", 128),
            max_len=hf.get_int("n_positions", 512),
            norm_eps=hf.get_float("layer_norm_epsilon", 1e-6),
            tied=hf.get_bool("tie_word_embeddings", True),
            scaled=None if hf.get(SCALED) is None else hf.get_bool(SCALED),
            special_ids=read_special_ids(hf),
            prefixes=read_prefixes(hf),
        )
        hf.warn_unused(
            ("initializer_factor", "is_encoder_decoder", "dense_act_fn", "is_gated_act", "classifier_dropout",
             "bos_token_id")
        )  # fmt: skip
        return config

    def config_to_hf(self, config: T5Config) -> dict[str, Any]:
        divides = config.output_scale != 1.0
        special_ids = write_special_ids(config.special_ids)
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
            "feed_forward_proj": hf_activation(config.activation, FEED_FORWARDS),
            "n_positions": config.max_len,
            "tie_word_embeddings": divides,  # Transformers 4 divides if this is true
            SCALED: divides,
            **{name: special_ids[name] for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id")},
            "use_cache": True,
            **write_prefixes(config.prefixes),
        }

    def tensor_map(self, config: T5Config) -> list[TensorMap]:
        if config.tied:
            # Without the division, Transformers 4 expects an output layer: the embedding is written a second time.
            copies = (HEAD,) if config.output_scale == 1.0 else ()
            aliases = (*EMBEDDING_ALIASES, HEAD)
            rows = [TensorMap(EMBEDDING, "embedding.table.weight", aliases=aliases, also_write_as=copies)]
        else:
            rows = [
                TensorMap(EMBEDDING, "embedding.table.weight", aliases=EMBEDDING_ALIASES),
                TensorMap(HEAD, "head.linear.weight"),
            ]
        depths = {"encoder": config.n_layers, "decoder": config.n_decoder_layers or config.n_layers}
        for stack, depth in depths.items():
            rows.append(TensorMap(f"{stack}.{BIAS}", f"{stack}.bias.table.weight"))
            rows.append(TensorMap(f"{stack}.final_layer_norm.weight", f"{stack}.final_norm.weight"))
            names = _layer_names(config, is_decoder=stack == "decoder")
            rows += [
                TensorMap(f"{stack}.block.{i}.{theirs}.weight", f"{stack}.layers.{i}.{ours}.weight")
                for i in range(depth)
                for ours, theirs in names.items()
            ]
        return rows

    def infer_from_weights(self, config: T5Config, tensors: Mapping[str, Tensor], *, where: str) -> T5Config:
        """Infer from the tensors of a Transformers 5 checkpoint whether the output layer is tied."""
        if config.scaled is None:
            return config
        head, names = tensors.get(HEAD), (EMBEDDING, *EMBEDDING_ALIASES)
        embedding = next((tensors[name] for name in names if name in tensors), None)
        tied = head is None or (embedding is not None and torch.equal(head, embedding))
        return replace(config, tied=tied, scaled=None if config.scaled == tied else config.scaled)

    def infer_from_files(self, config: T5Config, folder: Path, tokenizers: Tokenizers | None) -> T5Config:
        new_config: T5Config = read_generation_config(config, folder, tokenizers)
        return new_config

    def write_extra_files(self, config: T5Config, folder: Path) -> None:
        write_generation_config(config, folder)


def _layer_names(config: T5Config, *, is_decoder: bool) -> dict[str, str]:
    """Map heedful's names in a layer to Hugging Face's, which number self-attention, cross-attention, feed-forward."""
    names = {f"attention.{ours}": f"layer.0.SelfAttention.{theirs}" for ours, theirs in ATTENTION.items()}
    names["attention_residual.norm"] = "layer.0.layer_norm"
    if is_decoder:
        names |= {f"cross_attention.{ours}": f"layer.1.EncDecAttention.{theirs}" for ours, theirs in ATTENTION.items()}
        names["cross_attention_residual.norm"] = "layer.1.layer_norm"
    last = 2 if is_decoder else 1
    network = GATED_NETWORK if config.activation in GATED else PLAIN_NETWORK
    names |= {f"feed_forward.{ours}": f"layer.{last}.DenseReluDense.{theirs}" for ours, theirs in network.items()}
    names["feed_forward_residual.norm"] = f"layer.{last}.layer_norm"
    return names
