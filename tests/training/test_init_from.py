"""What a new run takes from the model of --init-from, and what can be set."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UserError
from heedful.models.model_io import FAMILIES, load_model, save_model
from heedful.text import (
    HFTokenizer,
    SentencePieceTokenizer,
    TokenizerConfig,
    Tokenizers,
    learn_tokenizer,
    load_tokenizers,
)
from heedful.text.tokenizer_config import Kind
from heedful.training import Files, Settings
from heedful.training import resolve_settings as resolving
from heedful.training.data_preparation import pair_tokenizers
from heedful.training.resolve_settings import resolve_settings
from small_tasks import sentences, write_pairs, write_text

SIZES: dict[str, dict[str, Any]] = {
    "gpt": {"n_layers": 1, "positions": "rotary"},
    "bart": {"n_layers": 1},
    "t5": {"n_layers": 1, "d_head": 8},
    "universal": {"n_steps": 2},
}


def start(folder: Path, family: str, kind: Kind = "bpe") -> Path:
    tokenizer = learn_tokenizer(sentences(100), TokenizerConfig(kind=kind, vocab_size=340))
    config, module = FAMILIES[family]
    sizes = {"d_model": 16, "d_ff": 32, "n_heads": 2, "max_len": 32, **SIZES[family]}
    sides = ("source_vocab_size", "target_vocab_size") if family == "universal" else ("vocab_size",)
    model = module(config(**dict.fromkeys(sides, tokenizer.vocab_size), **sizes))
    return save_model(folder / family, model, Tokenizers(tokenizer, tokenizer))


def resolved(folder: Path, family: str, *overrides: str, recipe: str = "") -> Settings:
    if family == "gpt":
        files = Files.of(write_text(folder), (), None, None, start(folder, family), "text")
    else:
        source, target = write_pairs(folder)
        files = Files.of(source, target, None, None, start(folder, family))
    (folder / "recipe.toml").write_text(recipe)
    return resolve_settings(files, None, folder / "recipe.toml" if recipe else None, list(overrides)).settings


@pytest.mark.parametrize("setting", ["model.n_layers=2", "model.activation=gelu", "model.n_kv_heads=1"])
def test_another_shape_than_that_of_the_start_is_rejected(setting: str, tmp_path: Path) -> None:
    """Ignoring the setting silently would be wrong, too."""
    name = setting.partition("=")[0]
    with pytest.raises(UserError, match=rf"'{name}' is .* in the model to start from, .*: leave it out"):
        resolved(tmp_path, "gpt", setting)
    assert resolved(tmp_path, "gpt", "model.n_layers=1").model["n_layers"] == 1  # the same value may be set


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("gpt", "n_kv_heads = 1\nd_head = 4"),
        ("bart", "n_decoder_layers = 2\nspecial_ids = {bos_id = 5}"),
        ("t5", "n_decoder_layers = 2\nscaled = false"),
        ("universal", "n_decoder_steps = 5"),
    ],
)
def test_a_recipe_cannot_change_the_shape_of_a_start(family: str, shape: str, tmp_path: Path) -> None:
    """This includes fields that the model to start from leaves to their default."""
    recipe = f'family = "{family}"\n[data]\nmax_len = 16\n[model]\ndropout = 0.25\nd_ff = 48\n{shape}\n'
    found = resolved(tmp_path, family, recipe=recipe)
    config = load_model(tmp_path / family).model.config
    sizes = {
        name: getattr(config, name) for name in ("source_vocab_size", "target_vocab_size") if hasattr(config, name)
    }
    assert found.model_config(**sizes) == replace(config, dropout=0.25)  # how it learns is for the recipe to say
    with pytest.raises(UserError, match=r"unknown key 'model\.d_f'"):
        resolved(tmp_path, family, recipe=recipe.replace("d_ff", "d_f"))


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [("gpt", "dropout", 0.3), ("bart", "activation_dropout", 0.2), ("universal", "ponder_weight", 0.5)],
)
def test_training_fields_of_a_start_may_be_set(family: str, key: str, value: float, tmp_path: Path) -> None:
    assert resolved(tmp_path, family, f"model.{key}={value}").model[key] == value


@pytest.mark.parametrize(("family", "n_marks"), [("t5", 1), ("universal", 1), ("gpt", 0)])
def test_models_without_a_last_position_may_learn_longer_texts(family: str, n_marks: int, tmp_path: Path) -> None:
    """The max_len of the new model is that of the longer texts."""
    longer = resolved(tmp_path, family, "data.max_len=64")
    assert (longer.data.max_len, longer.model["max_len"]) == (64, 64 + n_marks)
    assert resolved(tmp_path, family, "data.max_len=16").model["max_len"] == 32
    with pytest.raises(UserError, match="has 32 positions"):
        resolved(tmp_path, "bart", "data.max_len=64")


@pytest.mark.parametrize(("overrides", "recipe"), [(["tokenizer.sample_alpha=0.1"], ""), ([], "sample_alpha = 0.1\n")])
def test_tokenizers_that_cannot_sample_are_rejected_with_sample_alpha(
    overrides: list[str], recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message must not advise the setting that was just typed."""
    monkeypatch.setattr(sys.modules[__name__], "start", partial(start, kind="word"))
    recipe = recipe and f'family = "bart"\n[data]\nmax_len = 32\n[tokenizer]\n{recipe}'
    with pytest.raises(UserError, match=r"bart: its tokenizers cannot sample, .*: --set tokenizer\.sample_alpha=0$"):
        resolved(tmp_path, "bart", *overrides, recipe=recipe)
    assert resolved(tmp_path, "bart", "tokenizer.sample_alpha=0", recipe=recipe).tokenizer.sample_alpha == 0.0


@pytest.mark.parametrize(
    ("setting", "own"),
    [
        ("tokenizer.kind=unigram", "bpe"),
        ("tokenizer.vocab_size=500", "340"),
        ("tokenizer.joint=false", "True"),
        ("tokenizer.lowercase=true", "False"),
        ('tokenizer.special_tokens=["<new>"]', r"\[\]"),
    ],
)
def test_other_tokenizer_settings_than_those_of_the_start_are_rejected(setting: str, own: str, tmp_path: Path) -> None:
    """The model has embeddings for its own pieces, so the typed setting would be recorded and never used."""
    name = setting.partition("=")[0]
    with pytest.raises(UserError, match=rf"'{name}' is {own} in the model to start from, .*: leave it out"):
        resolved(tmp_path, "bart", setting)
    with pytest.raises(UserError, match=r"unknown key 'tokenizer\.kindd'; did you mean 'tokenizer\.kind'"):
        resolved(tmp_path, "bart", "tokenizer.kindd=bpe")
    same = resolved(tmp_path, "bart", "tokenizer.kind=bpe", "tokenizer.vocab_size=340", "tokenizer.joint=true")
    assert same.tokenizer == TokenizerConfig(vocab_size=340)


def test_the_record_has_the_tokenizer_that_is_used(tmp_path: Path) -> None:
    """The tokenizer of a recipe applies to runs without --init-from; sample_alpha applies to both."""
    table = '[tokenizer]\nkind = "char"\nvocab_size = 999\njoint = false\nlowercase = true\n'
    recipe = f'family = "bart"\n[data]\nmax_len = 32\n{table}'
    assert resolved(tmp_path, "bart", recipe=recipe).tokenizer == TokenizerConfig(vocab_size=340)
    sampled = resolved(tmp_path, "bart", "tokenizer.sample_alpha=0.1", recipe=recipe).tokenizer
    assert sampled == TokenizerConfig(vocab_size=340, sample_alpha=0.1)
    with pytest.raises(UserError, match="bpe would drop every merge"):
        resolved(tmp_path, "bart", "tokenizer.sample_alpha=1.5", recipe=recipe)


def test_a_converted_tokenizer_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was learned by other software, so no setting of heedful describes it."""
    loaded = load_model(start(tmp_path, "bart"))
    foreign = object.__new__(HFTokenizer)  # nobody looks into it
    public = replace(loaded, tokenizers=Tokenizers(foreign, foreign))
    monkeypatch.setattr(resolving, "load_model", lambda folder: public)
    with pytest.raises(UserError, match=r"bart: has a tokenizer of another make.*'tokenizer\.kind' = 'bpe'.*leave it"):
        resolved(tmp_path, "bart", "tokenizer.kind=bpe")
    assert resolved(tmp_path, "bart", "tokenizer.sample_alpha=0").family == "bart"


@pytest.mark.parametrize("before", [0.0, 0.3])
@pytest.mark.parametrize("wanted", [0.0, 0.1, 0.3])
def test_a_run_samples_with_its_own_alpha(before: float, wanted: float, tmp_path: Path) -> None:
    learned = learn_tokenizer(sentences(100), TokenizerConfig(vocab_size=340, sample_alpha=before))
    chosen = Settings(tokenizer=TokenizerConfig(sample_alpha=wanted))
    given = Tokenizers(learned, learned)
    found = pair_tokenizers(tmp_path / "tokenizers", [], chosen, init_from=given, notify=str)
    for tokenizers in (found, load_tokenizers(tmp_path / "tokenizers", probe=False)):
        assert tokenizers.joint
        assert isinstance(tokenizers.source, SentencePieceTokenizer)
        assert tokenizers.source.config == replace(learned.config, sample_alpha=wanted)
        assert tokenizers.source.encode("the dog runs") == learned.encode("the dog runs")
