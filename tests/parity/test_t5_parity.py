"""heedful's T5 equals Hugging Face's, versions 1.0 and 1.1: outputs and texts, in both directions."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deterministic import fill
from encoder_decoders import ours_from, same_gradients, same_outputs, same_searches, same_searches_of_several, shuffled
from heedful.errors import UserError
from heedful.interop import export_huggingface, import_huggingface
from heedful.interop.huggingface.t5 import T5Type
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.t5 import T5, T5Config
from heedful.text.special_ids import SpecialIds

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

SIZES = {
    "vocab_size": 60,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 1,  # their cache has a place for as many as the encoder has
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.0,
}
CASES = {
    "1.0": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated silu": {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False},
    "gelu": {"feed_forward_proj": "gelu", "layer_norm_epsilon": 1e-5},
    "as usual": {
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "num_decoder_layers": None,
    },
}


def hugging_face(dtype: torch.dtype = torch.float32, seed: int = 7, *, own: bool | None = None, **changes: object):
    """Return Hugging Face's model; version 1.1 has an untied output layer, as in the public files."""
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**{**SIZES, **changes}))
    if changes.get("tie_word_embeddings") is False if own is None else own:
        theirs.lm_head.weight = torch.nn.Parameter(torch.empty_like(theirs.shared.weight))
    return shuffled(theirs, dtype, seed=seed)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_outputs_are_equal(changes: dict, left: bool) -> None:
    theirs = hugging_face(**changes)
    same_outputs(theirs, ours_from(theirs, "t5"), atol=1e-5, left=left)


def test_outputs_are_equal_in_float64_up_to_their_float32_norm() -> None:
    """Their norm computes in float32 for any dtype of the model, which limits the precision."""
    theirs = hugging_face(torch.float64)
    same_outputs(theirs, ours_from(theirs, "t5", torch.float64), atol=1e-5)


@pytest.mark.parametrize("case", ["1.0", "1.1"])
def test_gradients_are_equal(case: str) -> None:
    theirs = hugging_face(**CASES[case])
    same_gradients(theirs, ours_from(theirs, "t5"), "t5", atol=1e-5)


@pytest.mark.parametrize("case", ["1.0", "1.1"])
def test_generate_gives_equal_texts(case: str) -> None:
    same_searches_of_several(lambda seed: hugging_face(seed=seed, **CASES[case]), "t5")


def old_folder(case: str, folder: Path):
    """Write a folder as Transformers 4 did, like the public ones: all tensor names, one setting."""
    theirs = hugging_face(**CASES[case])
    theirs.save_pretrained(folder)
    state = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((folder / "config.json").read_text())
    del values["scale_decoder_outputs"]
    values["tie_word_embeddings"] = CASES[case].get("tie_word_embeddings", True)
    (folder / "config.json").write_text(json.dumps(values))
    return theirs


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("case", ["1.0", "1.1"])
def test_a_folder_of_version_4_is_read(case: str, tmp_path: Path) -> None:
    theirs = old_folder(case, tmp_path / "theirs")
    loaded = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours"))
    assert loaded.family == "t5" and loaded.tokenizers is None
    assert (loaded.model.config.tied, loaded.model.config.scaled) == (case == "1.0", None)
    same_outputs(theirs, loaded.model, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("case", ["1.0", "1.1"])
def test_a_folder_of_version_4_loaded_and_saved_by_version_5_is_read(case: str, tmp_path: Path) -> None:
    old_folder(case, tmp_path / "old")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "old").eval()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert (ours.config.tied, ours.config.scaled) == (case == "1.0", None)
    same_outputs(theirs, ours, atol=1e-5)


NEW = {
    "1.0": {},
    "1.1, made anew": {"own": False, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "1.1": CASES["1.1"],
    "an output matrix of its own, divided": {"own": True},
}


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("case", NEW)
def test_a_folder_of_version_5_goes_there_and_back(case: str, tmp_path: Path) -> None:
    theirs = hugging_face(**NEW[case])
    theirs.save_pretrained(tmp_path / "theirs")
    folder = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    ours = load_model(folder).model
    same_outputs(theirs, ours, atol=1e-5)
    exported = export_huggingface(folder, tmp_path / "again")
    same_outputs(transformers.T5ForConditionalGeneration.from_pretrained(exported).eval(), ours, atol=1e-5)
    values = json.loads((exported / "config.json").read_text())
    divides, own_matrix = ours.config.output_scale != 1.0, not ours.config.tied
    assert values["tie_word_embeddings"] == values["scale_decoder_outputs"] == divides  # version 4 asks the first
    if not divides or own_matrix:
        assert "lm_head.weight" in load_file(exported / "model.safetensors")
    del values["heedful"]  # what others would read
    (exported / "config.json").write_text(json.dumps(values))
    back = load_model(import_huggingface(exported, tmp_path / "back")).model
    assert back.config == ours.config
    assert all(torch.equal(weights_of(back)[name], tensor) for name, tensor in weights_of(ours).items())


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
def test_sharded_weights_are_read(tmp_path: Path) -> None:
    theirs, folder = hugging_face(), tmp_path / "theirs"
    theirs.save_pretrained(folder, max_shard_size="6KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    same_outputs(theirs, load_model(import_huggingface(folder, tmp_path / "ours")).model, atol=1e-5)
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text())
    places["weight_map"] = {name: f"../{file}" for name, file in places["weight_map"].items()}
    index.write_text(json.dumps(places))
    with pytest.raises(UserError, match="not the name of a safetensors file in this folder"):
        import_huggingface(folder, tmp_path / "ours")


def test_pickles_are_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    hugging_face().save_pretrained(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*safetensors.*safe_serialization"):
        import_huggingface(folder, tmp_path / "ours")


OWN = {
    "trained here": T5Config(
        vocab_size=50, d_model=16, n_layers=2, n_heads=2, d_head=6, d_ff=20, n_buckets=8, max_distance=16
    ),
    "1.1": T5Config(
        vocab_size=50,
        d_model=16,
        n_layers=2,
        n_decoder_layers=1,
        n_heads=4,
        d_head=6,
        d_ff=20,
        activation="geglu",
        tied=False,
        special_ids=SpecialIds(pad_id=0, bos_id=0, eos_id=1),
    ),
}


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("case", OWN)
def test_there_and_back_is_the_identity(case: str, tmp_path: Path) -> None:
    model = fill(T5(OWN[case]), dtype=torch.float32)
    exported = export_huggingface(save_model(tmp_path / "model", model, None), tmp_path / "theirs")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(exported).eval()
    same_outputs(theirs, model, atol=1e-5)
    same_searches(theirs, model, n_inputs=8)
    back = load_model(import_huggingface(exported, tmp_path / "back")).model
    assert back.config == model.config
    for name, tensor in weights_of(model).items():
        assert torch.equal(weights_of(back)[name], tensor), name


def test_settings_go_there_and_back() -> None:
    for config in OWN.values():
        back = T5Type().config_from_hf(T5Type().config_to_hf(config), where="")
        assert (back.special_ids.start_id, back.special_ids.eos_id) == (
            config.special_ids.start_id,
            config.special_ids.eos_id,
        )
        assert {part for row in T5Type().tensor_map(config) for part in row.names} == set(weights_of(T5(config)))


REFUSED = {
    "feed_forward_proj": "gated-relu",
    "architectures": ["T5EncoderModel"],
    "is_decoder": True,
    "d_kv": "6",
    "relative_attention_num_buckets": 7,
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_settings_are_refused_by_name(name: str) -> None:
    values = {**transformers.T5Config(**SIZES).to_dict(), name: REFUSED[name]}
    with pytest.raises(UserError, match=name.removeprefix("relative_attention_num_")):
        T5Type().config_from_hf(values, where="config.json")
