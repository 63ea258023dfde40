"""A Transformer's settings in Hugging Face's words for Marian, and back; what has no word there, and why.

Pegasus is the same with the norms before each part (`pegasus.py`), in the same words.
"""

from collections.abc import Mapping
from typing import Any, Literal

from heedful.errors import UserError
from heedful.interop.generation import marks_from, marks_to
from heedful.interop.prefixes import warn_of_prefixes
from heedful.interop.values import Values
from heedful.models.seq2seq import Seq2SeqConfig

# Ours -> theirs.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "swish": "swish"}
# Theirs -> ours, with the other names that theirs go by.
NAMED = {**{theirs: ours for ours, theirs in ACTIVATIONS.items()}, "silu": "swish", "gelu_new": "gelu_tanh"}
FEWEST_POSITIONS = 1024  # rows of Marian's table of positions, where heedful's sinusoids know no last one

Tied = Literal["all", "target", "none"]


def why_not(config: Seq2SeqConfig) -> str | None:
    """Why Marian cannot compute what such a model computes; None if it can."""
    if config.residual != "post":
        return f"residual = '{config.residual}': Marian normalises after each residual, and has no final norm"
    return why_not_in("Marian", config)


def why_not_in(theirs: str, config: Seq2SeqConfig) -> str | None:
    """What neither Marian nor Pegasus computes."""
    d_head = config.d_head or config.d_model // config.n_heads
    refusals = {
        f"norm = '{config.norm}': {theirs} has layer norms": config.norm != "layer",
        f"positions = '{config.positions}': {theirs} computes sinusoidal ones": (
            config.positions not in ("sinusoidal", "sinusoidal_halves")
        ),
        f"activation = '{config.activation}': {theirs} has no gated feed-forward": config.activation not in ACTIVATIONS,
        f"pattern '{config.pattern.kind}': {theirs} attends to everything": config.pattern.kind != "full",
        f"join = '{config.join}': {theirs}'s decoder reads the last encoder layer": config.join != "last",
        f"n_kv_heads: {theirs} has as many key as query heads": config.n_kv_heads not in (None, config.n_heads),
        f"d_head = {d_head}: {theirs}'s heads share d_model among them": d_head * config.n_heads != config.d_model,
        f"marks.first_id: {theirs} puts nothing before a source": config.marks.first_id is not None,
        "init = 't5': such a model does without the division by the root of d_head": config.init == "t5",
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


def config_to(config: Seq2SeqConfig) -> dict[str, Any]:
    """The values of Hugging Face's config.json, or a UserError with the reason why there are none."""
    reason = why_not(config)
    if reason is not None:
        raise UserError(reason)
    return {
        "architectures": ["MarianMTModel"],
        "decoder_vocab_size": config.target_vocab_size,
        "share_encoder_decoder_embeddings": config.tied == "all",
        "tie_word_embeddings": config.tied != "none",
        "normalize_before": False,
        **sizes_to(config),
    }


def sizes_to(config: Seq2SeqConfig) -> dict[str, Any]:
    """What Marian and Pegasus say in the same words."""
    sides = {
        "layers": (config.n_layers, config.n_decoder_layers or config.n_layers),
        "attention_heads": (config.n_heads, config.n_heads),
        "ffn_dim": (config.d_ff, config.d_ff),
        "layerdrop": (0.0, 0.0),
    }
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size,
        "d_model": config.d_model,
        **{f"{side}_{name}": pair[i] for i, side in enumerate(("encoder", "decoder")) for name, pair in sides.items()},
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_embedding": False,
        "max_position_embeddings": max(FEWEST_POSITIONS, config.max_len),
        **marks_to(config.marks),
        "use_cache": True,
    }


def config_from(values: Mapping[str, Any], *, where: str) -> Seq2SeqConfig:
    """The settings of a Marian model, or a UserError that names what heedful has no place for."""
    given = Values(values, where=where)
    given.architecture("MarianMTModel", "MarianModel")
    for name in ("normalize_before", "add_final_layer_norm"):
        given.require(name, False)
    target_vocab_size = given.whole("decoder_vocab_size", given.whole("vocab_size"))
    return sizes_from(given, target_vocab_size=target_vocab_size, residual="post", tied=_tied(given))


def sizes_from(given: Values, **settings: Any) -> Seq2SeqConfig:
    """What Marian and Pegasus say in the same words; `settings`: ours that each says in its own."""
    if not given.flag("scale_embedding", False):
        raise UserError(
            f"{given.where}: 'scale_embedding' is not true: heedful's embeddings are multiplied by the root of D"
        )
    given.require("static_position_embeddings", True)
    for name in ("normalize_embedding", "is_decoder"):
        given.require(name, False)
    for name in ("attention_heads", "ffn_dim"):
        given.same(f"encoder_{name}", f"decoder_{name}")
    config = Seq2SeqConfig(
        source_vocab_size=given.whole("vocab_size"),
        d_model=given.whole("d_model"),
        n_layers=given.whole("encoder_layers"),
        n_decoder_layers=given.whole("decoder_layers"),
        n_heads=given.whole("encoder_attention_heads"),
        d_ff=given.whole("encoder_ffn_dim"),
        dropout=given.number("dropout", 0.0),
        attention_dropout=given.number("attention_dropout", 0.0),
        activation=given.choice("activation_function", NAMED, "gelu"),  # type: ignore[arg-type]
        positions="sinusoidal_halves",
        max_len=given.whole("max_position_embeddings", FEWEST_POSITIONS),
        marks=marks_from(given),
        **settings,
    )
    warn_of_prefixes(given)
    given.warn_unread(
        ("init_std", "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout",
         "num_hidden_layers", "is_encoder_decoder", "add_bias_logits", "bos_token_id", "activation_dropout",
         "extra_pos_embeddings")  # of the first OPUS-MT folders; nothing reads it any more
    )  # fmt: skip
    return config


def _tied(given: Values) -> Tied:
    shared, tied = (given.flag(name, True) for name in ("share_encoder_decoder_embeddings", "tie_word_embeddings"))
    if shared and not tied:
        raise UserError(
            f"{given.where}: embeddings that are shared, beside an output layer of its own: heedful has no such"
        )
    return "all" if shared else "target" if tied else "none"
