"""Small models with tokenizers for looks, one for each kind of settings."""

import functools

import torch

from deterministic import fill
from heedful.insight.inputs import LookModel
from heedful.insight.model_layout import Writer
from heedful.models.bart import Bart, BartConfig
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import Universal, UniversalConfig
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizers
from heedful.text.special_ids import SpecialIds

ENGLISH = ["A dog runs.", "Two dogs & a cat <sleep>.", "The animal was too tired.", "A big man eats bread."] * 10
OTHER = ["Ein Hund rennt.", "一个女人在街上走路。", "Das Tier war zu müde.", "Ein großer Mann isst Brot."] * 10
SENTENCE = "A dog runs."

VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "pre-norm": {"residual": "pre", "activation": "swiglu", "n_decoder_layers": 3},
    "no residual": {"residual": "none", "norm": "rms", "activation": "gelu"},
    "batch norm": {"norm": "batch", "residual": "pre", "activation": "swish"},
    "halves": {"positions": "sinusoidal_halves", "activation": "gelu_tanh", "tied": "target"},
    "learned": {"positions": "learned", "max_len": 120, "tied": "none"},
    "rotary": {"positions": "rotary", "n_kv_heads": 2, "d_head": 6, "activation": "geglu"},
    "relative": {"positions": "relative", "init": "t5", "residual": "pre", "norm": "rms"},
    "alibi": {"positions": "alibi", "join": "matching"},
    "no positions": {"positions": "none", "join": "mix", "n_kv_heads": 1},
    "additive": {"pattern": PatternConfig("additive"), "positions": "relative"},
    "local": {"pattern": PatternConfig("local", span=2)},
    "window": {"pattern": PatternConfig("window", span=4)},
    "strided": {"pattern": PatternConfig("strided", span=3)},
    "dilated": {"pattern": PatternConfig("dilated", span=3)},
    "sparse": {"pattern": PatternConfig("sparse", span=2, n_global=1)},
    "top_k": {"pattern": PatternConfig("top_k", span=3), "positions": "alibi"},
}

# The other families that read one text and write another
OTHER_FAMILIES: dict[str, tuple[type, type, dict[str, object]]] = {
    "bart": (Bart, BartConfig, {"max_len": 160}),
    "bart with BOS": (
        Bart,
        BartConfig,
        {
            "max_len": 160,
            "scaled_embedding": True,
            "special_ids": SpecialIds(decoder_start_id=3, eos_id=3, source_bos=True, force_bos=True),
        },
    ),
    "t5": (T5, T5Config, {"d_head": 6, "n_buckets": 8, "max_distance": 20}),
    "t5 v1.1": (T5, T5Config, {"d_head": 6, "activation": "geglu", "tied": False, "n_decoder_layers": 3, "spare": 5}),
    "universal": (Universal, UniversalConfig, {"n_steps": 4, "n_decoder_steps": 3, "threshold": 0.8}),
    "universal, no halting": (Universal, UniversalConfig, {"n_steps": 3, "halting": "none", "tied": "target"}),
}


@functools.cache
def tokenizers(*, joint: bool = True) -> Tokenizers:
    return learn_tokenizers(ENGLISH, OTHER, TokenizerConfig(kind="bpe", vocab_size=360, joint=joint))


@functools.cache
def look_model(variant: str = "plain") -> LookModel:
    words = tokenizers()
    values: dict[str, object] = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24, **VARIANTS[variant]}
    config = Seq2SeqConfig(words.source.vocab_size, words.target.vocab_size, **values)  # type: ignore[arg-type]
    model = fill(Seq2Seq(config), dtype=torch.float32)
    assert isinstance(model, Seq2Seq)
    return LookModel(model, words, name=variant)


@functools.cache
def other_look_model(name: str) -> LookModel:
    words = tokenizers()
    module, config, changes = OTHER_FAMILIES[name]
    values: dict[str, object] = {"d_model": 16, "n_heads": 4, "d_ff": 24, **changes}
    spare = values.pop("spare", 0)  # rows beyond the vocabulary: public models round its size up
    assert isinstance(spare, int)
    if module is Universal:
        values |= {"source_vocab_size": words.source.vocab_size, "target_vocab_size": words.target.vocab_size}
    else:
        values |= {"vocab_size": words.source.vocab_size + spare, "n_layers": 2}
    model = fill(module(config(**values)), dtype=torch.float32)
    assert isinstance(model, Writer)
    return LookModel(model, words, name=name)
