"""heedful's `bert` and Hugging Face's BERT: the same settings and weights under other names."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.config import config_from_dict
from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    ACTIVATIONS_THERE,
    HFConfig,
    has_pooler,
    head_from,
    labels_from,
    labels_to,
    multi_label_from,
)
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.bert import BertConfig
from heedful.text import Tokenizers

PREFIX = "bert."
# Position numbers, and what pre-training left: the head that tells whether one sentence follows another, and a pooler
# in files of models that label tokens. What the table asks for is never left out.
IGNORED = (
    r"bert\.embeddings\.position_ids",
    r"bert\.pooler\.dense\.(weight|bias)",
    r"cls\.seq_relationship\.(weight|bias)",
    r"cls\.predictions\.bias",
)

# theirs -> ours
HEADS = {
    "BertForMaskedLM": "masked",
    "BertForPreTraining": "masked",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
    "BertModel": "pool",
}
HEADS_THERE = {ours: theirs for theirs, ours in HEADS.items() if theirs != "BertForPreTraining"} | {"none": "BertModel"}
BARE = ("pool", "none")  # the heads of their base model, whose file has names without the prefix

# ours -> theirs, in each layer
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


def config_from(values: Mapping[str, Any], *, where: str) -> BertConfig:
    """Our settings, or a UserError that names what heedful has no place for."""
    given = HFConfig(values, where=where)
    given.require("position_embedding_type", "absolute")
    given.require("is_decoder", False)
    given.require("add_cross_attention", False)
    given.require("pruned_heads", {})
    head = head_from(given, HEADS, default="BertModel")
    labels = labels_from(given) if head in ("classify", "tag") else ()
    ours: dict[str, Any] = {
        "vocab_size": given.whole("vocab_size"),
        "d_model": given.whole("hidden_size"),
        "n_layers": given.whole("num_hidden_layers"),
        "n_heads": given.whole("num_attention_heads"),
        "d_ff": given.whole("intermediate_size"),
        "dropout": given.number("hidden_dropout_prob", 0.1),
        "attention_dropout": given.number("attention_probs_dropout_prob", 0.1),
        "activation": given.choice("hidden_act", ACTIVATIONS, "gelu"),
        "norm_eps": given.number("layer_norm_eps", 1e-12),
        "max_len": given.whole("max_position_embeddings", 512),
        "n_segments": given.whole("type_vocab_size", 2),
        "tied": given.flag("tie_word_embeddings", True),
        "head": head,
        "labels": labels,
        "multi_label": multi_label_from(given, labels) if labels else False,
        "special_ids": {
            "pad_id": given.whole("pad_token_id", 0),
            "bos_id": given.whole("cls_token_id", 2),
            "eos_id": given.whole("sep_token_id", 3),
            "mask_id": given.whole_or_none("mask_token_id"),
        },
    }
    if given.get("classifier_dropout") is not None:
        ours["classifier_dropout"] = given.number("classifier_dropout")
    given.warn_unread(
        ("initializer_range", "bos_token_id", "eos_token_id", "eos_token_ids", "directionality", *_OF_THE_OLD_POOLER)
    )
    return config_from_dict(BertConfig, ours, where=where)


# In the settings of Google's multilingual models; no code has ever read them.
_OF_THE_OLD_POOLER = (
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)


def settle(config: BertConfig, theirs: Mapping[str, Tensor], *, where: str) -> BertConfig:
    """Whether there is a pooler, as in a base model or left by pre-training beside the head for hidden words.

    config.json does not say: theirs has a switch for it in the code alone, `add_pooling_layer`.
    """
    found = has_pooler(theirs, PREFIX)
    if config.head == "masked":
        return replace(config, pooler=found)
    return replace(config, head="none") if config.head == "pool" and not found else config


def complete(config: BertConfig, folder: Path, tokenizers: Tokenizers | None) -> BertConfig:
    """The marks as the tokenizer has them: their config.json does not say where [CLS], [SEP] and [MASK] stand."""
    if tokenizers is None:
        return config
    special_ids = tokenizers.source.special_ids
    if special_ids.mask_id is None:
        special_ids = replace(special_ids, mask_id=config.special_ids.mask_id)
    return replace(config, special_ids=special_ids)


def config_to(config: BertConfig) -> dict[str, Any]:
    """The values of their config.json, or a UserError with the reason."""
    return {
        "architectures": [HEADS_THERE[config.head]],
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": ACTIVATIONS_THERE[config.activation],
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
        **labels_to(config.labels, multi_label=config.multi_label),
    }


def table(config: BertConfig) -> list[TensorMap]:
    """One row for each tensor of theirs."""
    rows = [
        TensorMap("bert.embeddings.word_embeddings.weight", "embedding.table.weight", aliases=_tied(config)),
        TensorMap("bert.embeddings.position_embeddings.weight", "positions.table.weight"),
        TensorMap("bert.embeddings.token_type_embeddings.weight", "segments.weight"),
        *_pair("bert.embeddings.LayerNorm", "norm"),
    ]
    for i in range(config.n_layers):
        for ours, theirs in LAYER.items():
            rows += _pair(f"bert.encoder.layer.{i}.{theirs}", f"encoder.layers.{i}.{ours}")
    return [_without_prefix(row) if config.head in BARE else row for row in rows + _head_rows(config)]


def _head_rows(config: BertConfig) -> list[TensorMap]:
    if config.head == "masked":
        # Without tying theirs adds the decoder's own bias and has the other one for nothing.
        bias, decoders = "cls.predictions.bias", "cls.predictions.decoder.bias"
        if config.tied:
            own = [TensorMap(bias, "head.linear.bias", aliases=(decoders,))]
        else:
            weight = TensorMap("cls.predictions.decoder.weight", "head.linear.weight")
            own = [weight, TensorMap(decoders, "head.linear.bias", again=(bias,))]
        return [
            *_pair("cls.predictions.transform.dense", "head.transform"),
            *_pair("cls.predictions.transform.LayerNorm", "head.norm"),
            *own,
            *(_pair("bert.pooler.dense", "head.pooler.linear") if config.pooler else []),
        ]
    if config.head == "classify":
        return [*_pair("bert.pooler.dense", "head.pooler.linear"), *_pair("classifier", "head.linear")]
    if config.head == "tag":
        return _pair("classifier", "head.linear")
    return _pair("bert.pooler.dense", "head.linear") if config.head == "pool" else []


def _tied(config: BertConfig) -> tuple[str, ...]:
    return ("cls.predictions.decoder.weight",) if config.head == "masked" and config.tied else ()


def _pair(theirs: str, ours: str) -> list[TensorMap]:
    """Weight and bias; those of a norm had TensorFlow's names in the first files."""
    old = {"weight": "gamma", "bias": "beta"} if theirs.endswith("LayerNorm") else {}
    return [
        TensorMap(f"{theirs}.{part}", f"{ours}.{part}", aliases=(f"{theirs}.{old[part]}",) if old else ())
        for part in ("weight", "bias")
    ]


def _without_prefix(row: TensorMap) -> TensorMap:
    """As a file of the base model alone has it; other programs write the prefix there, too."""
    bare = tuple(name.removeprefix(PREFIX) for name in row.names)
    return replace(row, theirs=bare[0], aliases=(*bare[1:], *row.names))
