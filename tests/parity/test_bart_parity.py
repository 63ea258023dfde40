"""heedful's BART equals Hugging Face's: outputs, gradients, generated texts, in both directions."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from deterministic import fill
from encoder_decoders import (
    EXACT,
    ours_from,
    same_gradients,
    same_outputs,
    same_searches,
    same_searches_of_several,
    shuffled,
)
from heedful.errors import UserError
from heedful.interop import export_huggingface, import_huggingface
from heedful.interop.huggingface.bart import BartType
from heedful.models.bart import Bart, BartConfig
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.text.special_ids import SpecialIds

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

SIZES = {
    "vocab_size": 60,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
    "dropout": 0.0,
}
# The switches that public checkpoints use: bart-base and large, distilbart, bart-large-cnn, those with other bends.
CASES = {
    "base": {},
    "scaled": {"scale_embedding": True},
    "relu": {"activation_function": "relu"},
    "gelu_new": {"activation_function": "gelu_new"},
    "first forced": {"forced_bos_token_id": 0},
    "one layer": {"encoder_layers": 1, "decoder_layers": 1},
}


def hugging_face(dtype: torch.dtype = torch.float32, seed: int = 7, **changes: object):
    config = transformers.BartConfig(**{**SIZES, **changes})
    return shuffled(transformers.BartForConditionalGeneration(config), dtype, seed=seed)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_outputs_are_equal(changes: dict, dtype: torch.dtype, left: bool) -> None:
    theirs = hugging_face(dtype, **changes)
    same_outputs(theirs, ours_from(theirs, "bart", dtype), atol=EXACT[dtype], left=left)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_gradients_are_equal(dtype: torch.dtype) -> None:
    theirs = hugging_face(dtype)
    same_gradients(theirs, ours_from(theirs, "bart", dtype), "bart", atol=EXACT[dtype])


@pytest.mark.parametrize("case", ["base", "first forced"])
def test_generate_gives_equal_texts(case: str) -> None:
    same_searches_of_several(lambda seed: hugging_face(seed=seed, **CASES[case]), "bart")


@pytest.mark.parametrize("case", ["base", "scaled", "first forced"])
def test_a_folder_of_hugging_face_is_read(case: str, tmp_path: Path) -> None:
    theirs = hugging_face(**CASES[case])
    theirs.generation_config.forced_bos_token_id = CASES[case].get("forced_bos_token_id")
    theirs.save_pretrained(tmp_path / "theirs")
    with pytest.warns(UserWarning, match="no tokenizer"):
        loaded = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours"))
    assert loaded.family == "bart" and loaded.tokenizers is None
    assert loaded.model.config.special_ids.n_forced == ("forced_bos_token_id" in CASES[case])
    same_outputs(theirs, loaded.model, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
def test_a_first_token_forced_by_the_older_setting_is_generated(tmp_path: Path) -> None:
    """Folders older than `forced_bos_token_id` have no generation_config.json either."""
    theirs = hugging_face(forced_bos_token_id=None)
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "generation_config.json").unlink()
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "force_bos_token_to_be_generated": True}))
    old = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    assert old.generation_config.forced_bos_token_id == old.config.bos_token_id
    ours = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert ours.config.special_ids.n_forced == 1
    same_searches(old, ours)


def test_the_model_without_its_head_is_read(tmp_path: Path) -> None:
    theirs = hugging_face()
    theirs.model.save_pretrained(tmp_path / "theirs")
    with pytest.warns(UserWarning, match="no tokenizer"):
        ours = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert not ours.head.linear.bias.any()
    theirs.final_logits_bias.zero_()
    same_outputs(theirs, ours, atol=1e-5)


OWN = {
    "trained here": BartConfig(
        vocab_size=50, d_model=16, n_layers=1, n_decoder_layers=2, n_heads=2, d_ff=20, max_len=24
    ),
    "marks of its own": BartConfig(
        vocab_size=50,
        d_model=16,
        n_layers=2,
        n_heads=4,
        d_ff=20,
        max_len=24,
        scaled_embedding=True,
        activation="relu",
        special_ids=SpecialIds(pad_id=1, bos_id=0, eos_id=2, decoder_start_id=2, source_bos=True, force_bos=True),
    ),
}


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("case", OWN)
def test_there_and_back_is_the_identity(case: str, tmp_path: Path) -> None:
    model = fill(Bart(OWN[case]), dtype=torch.float32)
    exported = export_huggingface(save_model(tmp_path / "model", model, None), tmp_path / "theirs")
    theirs = transformers.BartForConditionalGeneration.from_pretrained(exported).eval()
    same_outputs(theirs, model, atol=1e-5)
    same_searches(theirs, model, n_inputs=8)
    for folder in (exported, tmp_path / "again"):
        theirs.save_pretrained(tmp_path / "again")
        back = load_model(import_huggingface(folder, tmp_path / "back")).model
        assert back.config == model.config
        for name, tensor in weights_of(model).items():
            assert torch.equal(weights_of(back)[name], tensor), name


def test_settings_go_there_and_back() -> None:
    for config in OWN.values():
        back = BartType().config_from_hf(BartType().config_to_hf(config), where="")
        assert dataclasses.replace(back, n_decoder_layers=config.n_decoder_layers) == dataclasses.replace(
            config, special_ids=back.special_ids
        )
    assert {part for row in BartType().tensor_map(OWN["trained here"]) for part in row.names} == set(
        weights_of(Bart(OWN["trained here"]))
    )


REFUSED = {
    "tie_word_embeddings": False,
    "normalize_before": True,
    "static_position_embeddings": True,
    "activation_function": "tanh",
    "decoder_ffn_dim": 28,
    "architectures": ["BartForSequenceClassification"],
    "eos_token_id": [2, 3],
    "forced_bos_token_id": 7,
    "d_model": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_settings_are_refused_by_name(name: str) -> None:
    values = {**transformers.BartConfig(**SIZES).to_dict(), name: REFUSED[name]}
    with pytest.raises(UserError, match=name):
        BartType().config_from_hf(values, where="config.json")


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize(("name", "value"), [("forced_bos_token_id", 7), ("eos_token_id", [2, 3]), ("eos_token_id", 3)])
def test_unsupported_generation_settings_are_refused_by_name(name: str, value: object, tmp_path: Path) -> None:
    hugging_face().save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(UserError, match=name):
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")


SEARCH = {"length_penalty": 2.0, "no_repeat_ngram_size": 3, "min_length": 56, "num_beams": 4, "repetition_penalty": 1.0}


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_search_settings_are_not_kept_with_a_warning(name: str, tmp_path: Path) -> None:
    """bart-large-cnn has such settings, in one file or the other."""
    hugging_face().save_pretrained(tmp_path / "theirs")
    if name == "config.json":
        (tmp_path / "theirs" / "generation_config.json").unlink()
    path = tmp_path / "theirs" / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **SEARCH}))
    said = rf"{name}: .*length_penalty=2.0, no_repeat_ngram_size=3, min_length=56.*no_repeat_ngram=3 min_len=56"
    with pytest.warns(UserWarning, match=said):
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")
