"""heedful's Transformer with the norm before each part as Hugging Face's PegasusForConditionalGeneration.

Pegasus is Marian's model but for the norms: they stand before each part, and one more at the end of each side. The
sinusoids, the tied embeddings times sqrt(D), the names and the order of the D axis are Marian's, and shared with it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.interop.huggingface import marian
from heedful.interop.huggingface.config_files import HFConfig
from heedful.interop.huggingface.marian import sizes_from, sizes_to, why_not_in
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.seq2seq import Seq2SeqConfig
from heedful.nn.positions import sinusoidal_code


def why_not(config: Seq2SeqConfig) -> str | None:
    """Why Pegasus cannot compute what such a model computes; None if it can."""
    if config.residual != "pre":
        return f"residual = '{config.residual}': Pegasus normalises before each part"
    if config.tied != "all":
        return (
            f"tied = '{config.tied}': Pegasus has one matrix for both sides and the output; train with one vocabulary "
            "(tokenizer.joint = true), or with model.residual = 'post' for Marian"
        )
    return why_not_in("Pegasus", config)


def config_to(config: Seq2SeqConfig) -> dict[str, Any]:
    """The values of Hugging Face's config.json, or a UserError with the reason why there are none."""
    reason = why_not(config)
    if reason is not None:
        raise UserError(reason)
    return {
        "architectures": ["PegasusForConditionalGeneration"],
        "tie_word_embeddings": True,
        "normalize_before": True,
        "add_final_layer_norm": True,
        **sizes_to(config),
    }


def config_from(values: Mapping[str, Any], *, where: str) -> Seq2SeqConfig:
    """The settings of a Pegasus model, or a UserError that names what heedful has no place for."""
    given = HFConfig(values, where=where)
    given.architecture("PegasusForConditionalGeneration", "PegasusModel")
    for name in ("normalize_before", "add_final_layer_norm", "tie_word_embeddings"):
        given.require(name, True)
    return sizes_from(given, target_vocab_size=given.whole("vocab_size"), residual="pre", tied="all")


def table(config: Seq2SeqConfig) -> list[TensorMap]:
    order = marian.order_of(config)
    final = [
        TensorMap(f"model.{side}.layer_norm.{part}", f"{side}.final_norm.{part}", order=order)
        for side in ("encoder", "decoder")
        for part in ("weight", "bias")
    ]
    return [*marian.table(config), *final]


def computed(config: Seq2SeqConfig) -> dict[str, Tensor]:
    """The sinusoids: Pegasus computes them, too, but warns of missing weights if the file has none."""
    positions = torch.arange(sizes_to(config)["max_position_embeddings"])
    code = sinusoidal_code(positions, config.d_model, layout="halves")
    return {name: code.clone() for name in marian.POSITION_TABLES}
