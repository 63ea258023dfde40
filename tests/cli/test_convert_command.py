"""`heedful convert`: every conversion, and the messages about models that cannot be converted."""

import json
import re
from pathlib import Path

import ctranslate2
import pytest
import torch

from deterministic import fill
from echo_engine import tokenizers
from heedful.cli import main
from heedful.decoding.hf_pipelines import pipeline
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import key_of
from heedful.models.bart import Bart, BartConfig
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.models.universal import Universal, UniversalConfig

SIZE = tokenizers().source.vocab_size


@pytest.fixture
def model(tmp_path: Path) -> Path:
    config = Seq2SeqConfig(SIZE, SIZE, d_model=16, n_layers=1, n_heads=2, d_ff=12, max_len=64)
    return save_model(tmp_path / "model", fill(Seq2Seq(config), dtype=torch.float32), tokenizers())


def converted(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.run(["convert", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refused(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.run(["convert", *map(str, arguments)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return err


def test_to_hugging_face_and_back(model: Path, tmp_path: Path, capsys) -> None:
    assert "model.safetensors" in converted(model, tmp_path / "theirs", "--format", "huggingface", capsys=capsys)
    converted(tmp_path / "theirs", tmp_path / "back", "--format", "heedful", capsys=capsys)
    first, again = load_model(model), load_model(tmp_path / "back")
    assert again.model.config == first.model.config
    assert all(torch.equal(weights_of(again.model)[name], tensor) for name, tensor in weights_of(first.model).items())
    assert again.tokenizers.source.fingerprint == first.tokenizers.source.fingerprint


def test_to_ctranslate2_gives_the_same_translations(model: Path, tmp_path: Path, capsys) -> None:
    converted(model, tmp_path / "ct2", "--format", "ctranslate2", capsys=capsys)
    texts = ["A dog.", "abc", "Who goes there?"]
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    source = tokenizers().source
    sources = [source.pieces(source.encode(text)) for text in texts]
    results = theirs.translate_batch(sources, beam_size=1, max_decoding_length=20)
    texts_there = [source.decode([source.id_of(piece) for piece in one.hypotheses[0]]) for one in results]
    assert texts_there == Translator.load(model, engine="torch").translate(texts, beam=1, max_len=20)


@pytest.mark.filterwarnings("ignore")
def test_a_missing_tokenizer_is_reported(tmp_path: Path, capsys) -> None:
    config = BartConfig(vocab_size=40, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=16)
    folder = save_model(tmp_path / "model", fill(Bart(config), dtype=torch.float32), None)
    assert main.run(["convert", str(folder), str(tmp_path / "theirs"), "--format", "huggingface"]) == 0
    assert "no tokenizer" in capsys.readouterr().err
    assert main.run(["convert", str(tmp_path / "theirs"), str(tmp_path / "back"), "--format", "heedful"]) == 0
    assert "will take ids" in capsys.readouterr().err
    assert load_model(tmp_path / "back").model.config == config


def test_a_model_without_a_counterpart_is_refused_with_the_reason(model: Path, tmp_path: Path, capsys) -> None:
    config = UniversalConfig(SIZE, SIZE, d_model=8, n_steps=2, n_heads=2, d_ff=12)
    universal = save_model(tmp_path / "universal", fill(Universal(config), dtype=torch.float32), tokenizers())
    for to, words in (
        ("huggingface", "no model like the family 'universal'"),
        ("ctranslate2", "'universal'"),
    ):
        assert words in refused(universal, tmp_path / "out", "--format", to, capsys=capsys)
        assert not (tmp_path / "out").exists()
    assert "already" in refused(model, tmp_path / "out", "--format", "heedful", capsys=capsys)
    assert "no such folder" in refused(tmp_path / "none", tmp_path / "out", "--format", "heedful", capsys=capsys)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "whisper"}))
    assert "whisper" in refused(tmp_path / "other", tmp_path / "out", "--format", "heedful", capsys=capsys)
    assert "--format heedful" in refused(tmp_path / "other", tmp_path / "out", "--format", "onnx", capsys=capsys)


def theirs(folder: Path, config: object = None, *names: str) -> Path:
    """Make a folder of another program: its config, and files of which only the names matter."""
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    for name in names:
        (folder / name).write_bytes(b"{}")
    return folder


def test_every_command_refuses_a_hugging_face_folder_with_the_conversion_to_type(tmp_path: Path, capsys) -> None:
    folder = theirs(tmp_path / "theirs", {"model_type": "gpt2"}, "model.safetensors")
    words = f"{folder}: is a Hugging Face model; convert it first: heedful convert {folder} OUTPUT --format heedful"
    (tmp_path / "text.txt").write_text("a\nb\n")
    for line in (
        ["generate", "a", "-m", folder],
        ["translate", "-m", folder, tmp_path / "text.txt"],
        ["classify", "-m", folder, tmp_path / "text.txt"],
        ["look", "a", "-m", folder],
        ["train", tmp_path / "run", "--init-from", folder, "--text", tmp_path / "text.txt"],
        ["convert", folder, tmp_path / "out", "--format", "heedful", "--precision", "int8"],
    ):
        assert main.run([str(word) for word in line]) == 1, line
        assert words in capsys.readouterr().err, line
    for opened in (load_model, lambda path: pipeline("text-generation", model=path), key_of):
        with pytest.raises(UserError, match=r"heedful convert .*theirs OUTPUT --format heedful"):
            opened(folder)


def test_a_name_of_the_hub_gets_the_download_to_type(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bert-base-uncased", "Helsinki-NLP/opus-mt-en-de"):
        message = refused(Path(name), tmp_path / "out", "--format", "heedful", capsys=capsys)
        assert f"hf download {name} --local-dir {Path(name).name}" in message
    assert "hf download" not in refused(tmp_path / "none", tmp_path / "out", "--format", "heedful", capsys=capsys)


OTHERS = {
    "an adapter": (None, ("adapter_config.json", "adapter_model.safetensors"), "adapter.*merge_and_unload"),
    "an adapter with settings": ({"model_type": "gpt2"}, ("adapter_config.json",), "adapter.*merge_and_unload"),
    "llama.cpp's": (None, ("model-q4.gguf",), r"llama\.cpp \(model-q4\.gguf\).*model\.safetensors"),
    "llama.cpp's with settings": ({"model_type": "gpt2"}, ("model-q4.gguf",), r"llama\.cpp"),
    "nothing": ({"model_type": "gpt2"}, (), r"has no weights \(model\.safetensors\); copy the folder again"),
    "packed": (
        {"model_type": "gpt2", "quantization_config": {"quant_method": "gptq"}},
        ("model.safetensors",),
        r"config\.json: 'quantization_config'.*quantized \(gptq",
    ),
    "a relative by name": ({"model_type": "roberta"}, (), "'model_type' is 'roberta'\nheedful reads: marian"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_an_unsupported_folder_is_described(case: str, tmp_path: Path, capsys) -> None:
    config, names, words = OTHERS[case]
    folder = theirs(tmp_path / "theirs", config, *names)
    message = refused(folder, tmp_path / "out", "--format", "heedful", capsys=capsys)
    assert re.search(words, message) and str(folder) in message and "did you mean" not in message
    if config is None:  # the other functions that read a folder, too
        with pytest.raises(UserError, match=words):
            load_model(folder)


def test_a_wrong_shape_is_reported_with_hugging_faces_name(model: Path, tmp_path: Path, capsys) -> None:
    converted(model, tmp_path / "theirs", "--format", "huggingface", capsys=capsys)
    path = tmp_path / "theirs" / "config.json"
    changed = {f"{side}_ffn_dim": 20 for side in ("encoder", "decoder")}
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    message = refused(tmp_path / "theirs", tmp_path / "out", "--format", "heedful", capsys=capsys)
    assert "'model.encoder.layers.0.fc1.weight' ('encoder.layers.0.feed_forward.inner.weight' in heedful)" in message
    assert "has shape (12, 16), but config.json asks for (20, 16)" in message
