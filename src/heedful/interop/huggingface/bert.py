"""BERT as heedful's family `bert`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.config import config_from_dict
from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    HFConfig,
    has_pooler,
    hf_activation,
    read_head,
    read_labels,
    read_multi_label,
    write_labels,
)
from heedful.interop.huggingface.model_type import ModelType
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.bert import BertConfig
from heedful.text import Tokenizers

PREFIX = "bert."

# Hugging Face's classes -> heedful's heads
HEADS = {
    "BertForMaskedLM": "masked",
    "BertForPreTraining": "masked",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
    "BertModel": "pool",
}
CLASSES = {ours: theirs for theirs, ours in HEADS.items() if theirs != "BertForPreTraining"} | {"none": "BertModel"}
WITHOUT_PREFIX = ("pool", "none")  # heads of the base model, whose checkpoints leave out the prefix of tensor names

# heedful's names in a layer -> Hugging Face's
LAYER = {
    "attention.to_q": "attention.self.query",
    "attention.to_k": "attention.self.key",
    "attention.to_v": "attention.self.value",
    "attention.to_out": "attention.output.dense",
    "attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
# In Google's multilingual models; no code has ever read them.
UNUSED_POOLER_SETTINGS = (
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)


class BertType(ModelType):
    """BERT with any of heedful's heads."""

    family = "bert"
    prefix = PREFIX
    # Position numbers, and what pre-training leaves: the head for the next sentence, a pooler in a model that tags.
    ignored = (
        r"bert\.embeddings\.position_ids",
        r"bert\.pooler\.dense\.(weight|bias)",
        r"cls\.seq_relationship\.(weight|bias)",
        r"cls\.predictions\.bias",
    )

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> BertConfig:
        hf = HFConfig(values, where=where)
        hf.require("position_embedding_type", "absolute")
        hf.require("is_decoder", False)
        hf.require("add_cross_attention", False)
        hf.require("pruned_heads", {})
        head = read_head(hf, HEADS, default="BertModel")
        labels = read_labels(hf) if head in ("classify", "tag") else ()
        ours: dict[str, Any] = {
            "vocab_size": hf.get_int("vocab_size"),
            "d_model": hf.get_int("hidden_size"),
            "n_layers": hf.get_int("num_hidden_layers"),
            "n_heads": hf.get_int("num_attention_heads"),
            "d_ff": hf.get_int("intermediate_size"),
            "dropout": hf.get_float("hidden_dropout_prob", 0.1),
            "attention_dropout": hf.get_float("attention_probs_dropout_prob", 0.1),
            "activation": hf.get_choice("hidden_act", ACTIVATIONS, "gelu"),
            "norm_eps": hf.get_float("layer_norm_eps", 1e-12),
            "max_len": hf.get_int("max_position_embeddings", 512),
            "n_segments": hf.get_int("type_vocab_size", 2),
            "tied": hf.get_bool("tie_word_embeddings", True),
            "head": head,
            "labels": labels,
            "multi_label": read_multi_label(hf, labels) if labels else False,
            "special_ids": {
                "pad_id": hf.get_int("pad_token_id", 0),
                "bos_id": hf.get_int("cls_token_id", 2),
                "eos_id": hf.get_int("sep_token_id", 3),
                "mask_id": hf.get_optional_int("mask_token_id"),
            },
        }
        if hf.get("classifier_dropout") is not None:
            ours["classifier_dropout"] = hf.get_float("classifier_dropout")
        hf.warn_unused(
            ("initializer_range", "bos_token_id", "eos_token_id", "eos_token_ids", "directionality",
             *UNUSED_POOLER_SETTINGS)
        )  # fmt: skip
        return config_from_dict(BertConfig, ours, where=where)

    def config_to_hf(self, config: BertConfig) -> dict[str, Any]:
        return {
            "architectures": [CLASSES[config.head]],
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads,
            "intermediate_size": config.d_ff,
            "hidden_act": hf_activation(config.activation),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "classifier_dropout": config.classifier_dropout,
            "max_position_embeddings": config.max_len,
            "type_vocab_size": config.n_segments,
            "layer_norm_eps": config.norm_eps,
            "tie_word_embeddings": config.tied,
            "pad_token_id": config.special_ids.pad_id,
            "cls_token_id": config.special_ids.bos_id,
            "sep_token_id": config.special_ids.eos_id,
            "mask_token_id": config.special_ids.mask_id,
            **write_labels(config.labels, multi_label=config.multi_label),
        }

    def tensor_map(self, config: BertConfig) -> list[TensorMap]:
        aliases = ("cls.predictions.decoder.weight",) if config.head == "masked" and config.tied else ()
        rows = [
            TensorMap("bert.embeddings.word_embeddings.weight", "embedding.table.weight", aliases=aliases),
            TensorMap("bert.embeddings.position_embeddings.weight", "positions.table.weight"),
            TensorMap("bert.embeddings.token_type_embeddings.weight", "segments.weight"),
            *_weight_and_bias("bert.embeddings.LayerNorm", "norm"),
        ]
        for i in range(config.n_layers):
            for ours, theirs in LAYER.items():
                rows += _weight_and_bias(f"bert.encoder.layer.{i}.{theirs}", f"encoder.layers.{i}.{ours}")
        rows += _head_rows(config)
        return [without_prefix(row, PREFIX) for row in rows] if config.head in WITHOUT_PREFIX else rows

    def infer_from_weights(self, config: BertConfig, tensors: Mapping[str, Tensor], *, where: str) -> BertConfig:
        """Infer whether there is a pooler, in a base model or in addition to the head for masked tokens.

        It is not in config.json; in Hugging Face's code it is an argument, `add_pooling_layer`.
        """
        pooler = has_pooler(tensors, PREFIX)
        if config.head == "masked":
            return replace(config, pooler=pooler)
        return replace(config, head="none") if config.head == "pool" and not pooler else config

    def infer_from_files(self, config: BertConfig, folder: Path, tokenizers: Tokenizers | None) -> BertConfig:
        """Take the special ids from the tokenizer: BERT's config.json has no ids of [CLS], [SEP] and [MASK]."""
        if tokenizers is None:
            return config
        special_ids = tokenizers.source.special_ids
        if special_ids.mask_id is None:
            special_ids = replace(special_ids, mask_id=config.special_ids.mask_id)
        return replace(config, special_ids=special_ids)


def without_prefix(row: TensorMap, prefix: str) -> TensorMap:
    """Return a row that writes names without the prefix, as in a checkpoint of the base model, and reads both."""
    bare = tuple(name.removeprefix(prefix) for name in row.hf_names)
    return replace(row, hf_name=bare[0], aliases=(*bare[1:], *row.hf_names))


def _head_rows(config: BertConfig) -> list[TensorMap]:
    if config.head == "masked":
        # If the weights are not tied, Hugging Face adds the decoder's own bias and leaves the other one unused.
        bias, decoder_bias = "cls.predictions.bias", "cls.predictions.decoder.bias"
        if config.tied:
            output = [TensorMap(bias, "head.linear.bias", aliases=(decoder_bias,))]
        else:
            weight = TensorMap("cls.predictions.decoder.weight", "head.linear.weight")
            output = [weight, TensorMap(decoder_bias, "head.linear.bias", also_write_as=(bias,))]
        return [
            *_weight_and_bias("cls.predictions.transform.dense", "head.transform"),
            *_weight_and_bias("cls.predictions.transform.LayerNorm", "head.norm"),
            *output,
            *(_weight_and_bias("bert.pooler.dense", "head.pooler.linear") if config.pooler else []),
        ]
    if config.head == "classify":
        pooler = _weight_and_bias("bert.pooler.dense", "head.pooler.linear")
        return [*pooler, *_weight_and_bias("classifier", "head.linear")]
    if config.head == "tag":
        return _weight_and_bias("classifier", "head.linear")
    return _weight_and_bias("bert.pooler.dense", "head.linear") if config.head == "pool" else []


def _weight_and_bias(theirs: str, ours: str) -> list[TensorMap]:
    """Return the rows of one module. The first checkpoints have TensorFlow's names in norms: gamma and beta."""
    old = {"weight": "gamma", "bias": "beta"} if theirs.endswith("LayerNorm") else {}
    return [
        TensorMap(f"{theirs}.{part}", f"{ours}.{part}", aliases=(f"{theirs}.{old[part]}",) if old else ())
        for part in ("weight", "bias")
    ]
