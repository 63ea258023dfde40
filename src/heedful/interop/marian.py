"""heedful's Transformer as Hugging Face's MarianMTModel: the same numbers under other names.

Marian's wiring is that of the 2017 paper: post-norm, sinusoidal positions, tied embeddings times sqrt(D). Its position
code has all sines first, then all cosines. The order of the D numbers between the parts means nothing as long as all
parts agree on it; so a model with the paper's own order, sine and cosine in turn, is exported by putting the D axis of
every weight into Marian's order, and computes the same.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.config import read_json
from heedful.errors import UserError
from heedful.interop.table import Row
from heedful.models.find import CONFIG
from heedful.models.seq2seq import Seq2SeqConfig
from heedful.nn.positions import sinusoidal_code
from heedful.text import SPECIAL_PIECES, SentencePieceTokenizer, Tokenizer, Tokenizers, load_tokenizer
from heedful.text.folder import SOURCE, TARGET
from heedful.text.safe import read_model

TOKENIZER, VOCABULARY, TARGET_VOCABULARY = "tokenizer_config.json", "vocab.json", "target_vocab.json"
LOGITS_BIAS = "final_logits_bias"
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
IGNORED = (LOGITS_BIAS, *(name.replace(".", r"\.") for name in POSITION_TABLES))


class Part(NamedTuple):
    ours: str
    theirs: str
    d_model: int  # the axis of its weight that has D numbers; a bias runs along axis 0 of its weight


# The one table: what stands in each layer, here and there.
ATTENTION = (
    Part("to_q", "q_proj", 1),
    Part("to_k", "k_proj", 1),
    Part("to_v", "v_proj", 1),
    Part("to_out", "out_proj", 0),
)
LAYER = (
    *(Part(f"attention.{part.ours}", f"self_attn.{part.theirs}", part.d_model) for part in ATTENTION),
    Part("attention_residual.norm", "self_attn_layer_norm", 0),
    Part("feed_forward.inner", "fc1", 1),
    Part("feed_forward.outer", "fc2", 0),
    Part("feed_forward_residual.norm", "final_layer_norm", 0),
)
CROSS = (
    *(Part(f"cross_attention.{part.ours}", f"encoder_attn.{part.theirs}", part.d_model) for part in ATTENTION),
    Part("cross_attention_residual.norm", "encoder_attn_layer_norm", 0),
)
# tied -> the matrices that the file has. Of one that is tied Hugging Face may write any of its names.
EMBEDDINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {
        "source_embedding.table.weight": (
            "model.shared.weight",
            "lm_head.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        )
    },
    "target": {
        "source_embedding.table.weight": ("model.encoder.embed_tokens.weight",),
        "target_embedding.table.weight": ("model.decoder.embed_tokens.weight", "lm_head.weight"),
    },
    "none": {
        "source_embedding.table.weight": ("model.encoder.embed_tokens.weight",),
        "target_embedding.table.weight": ("model.decoder.embed_tokens.weight",),
        "head.linear.weight": ("lm_head.weight",),
    },
}


def table(config: Seq2SeqConfig) -> list[Row]:
    order = order_of(config)
    rows = [
        Row(names[0], ours, axis=1, aliases=names[1:], order=order) for ours, names in EMBEDDINGS[config.tied].items()
    ]
    if config.logits_bias:
        rows.append(Row(LOGITS_BIAS, "head.linear.bias", wrapped=True))
    stacks = (
        ("encoder", config.n_layers, LAYER),
        ("decoder", config.n_decoder_layers or config.n_layers, LAYER + CROSS),
    )
    for stack, n_layers, parts in stacks:
        for i in range(n_layers):
            for part in parts:
                ours, theirs = f"{stack}.layers.{i}.{part.ours}", f"model.{stack}.layers.{i}.{part.theirs}"
                rows.append(Row(f"{theirs}.weight", f"{ours}.weight", axis=part.d_model, order=order))
                rows.append(Row(f"{theirs}.bias", f"{ours}.bias", order=order if part.d_model == 0 else ()))
    return rows


def settle(config: Seq2SeqConfig, theirs: Mapping[str, Tensor], *, where: str) -> Seq2SeqConfig:
    """Whether there is a bias on the logits; tables of positions must be the sinusoids that it has by itself."""
    for name in POSITION_TABLES:
        if name in theirs:
            found, rounding = theirs[name].double(), 2**-8 if theirs[name].dtype == torch.bfloat16 else 0.0
            wanted = sinusoidal_code(torch.arange(len(found)), config.d_model, layout="halves")
            if found.shape != wanted.shape or (found - wanted).abs().max() > 1e-3 + rounding:
                raise UserError(f"{where}: '{name}' holds other positions than the sinusoids that are computed there")
    bias = theirs.get(LOGITS_BIAS)
    return config if bias is None or not bias.any() else dataclasses.replace(config, logits_bias=True)


def order_of(config: Seq2SeqConfig) -> tuple[int, ...]:
    """Of the D axis, for all sines first, then all cosines; nothing to do where they stand so already."""
    return (*range(0, config.d_model, 2), *range(1, config.d_model, 2)) if config.positions == "sinusoidal" else ()


def write_tokenizers(folder: Path, tokenizers: Tokenizers) -> None:
    """heedful's own tokenizers as `MarianTokenizer` reads them."""
    files = [(SOURCE, VOCABULARY, tokenizers.source), (TARGET, TARGET_VOCABULARY, tokenizers.target)]
    for spm, vocabulary, tokenizer in files:
        tokenizer.save(folder / spm)
        if vocabulary == VOCABULARY or not tokenizers.joint:
            _write_json(folder / vocabulary, {piece: number for number, piece in enumerate(_pieces(tokenizer))})
    pad, unknown, start, end = SPECIAL_PIECES
    values = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not tokenizers.joint,
        "model_max_length": read_json(folder / CONFIG)["max_position_embeddings"],
        "pad_token": pad,
        "unk_token": unknown,
        "bos_token": start,
        "eos_token": end,
    }
    _write_json(folder / TOKENIZER, values)


def own_tokenizers(folder: Path) -> Tokenizers | None:
    """The tokenizers, if the ids are those of the SentencePiece models and the marks heedful's; None if they are not,
    as in the public OPUS-MT models.
    """
    if not all((folder / name).is_file() for name in (SOURCE, TARGET, VOCABULARY)):
        return None
    separate = (folder / TARGET_VOCABULARY).is_file()
    vocabularies = [read_json(folder / name) for name in (VOCABULARY, TARGET_VOCABULARY if separate else VOCABULARY)]
    if any([vocabulary.get(piece) for piece in SPECIAL_PIECES] != [0, 1, 2, 3] for vocabulary in vocabularies):
        return None
    source, target = load_tokenizer(folder / SOURCE), load_tokenizer(folder / TARGET)
    if source.model == target.model:
        target = source
    for tokenizer, vocabulary in zip((source, target), vocabularies, strict=True):
        if vocabulary != {piece: number for number, piece in enumerate(_pieces(tokenizer))}:
            return None
    return Tokenizers(source=source, target=target)


def _pieces(tokenizer: Tokenizer) -> list[str]:
    """The pieces as SentencePiece spells them."""
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return read_model(tokenizer.model, where="tokenizer").pieces


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
