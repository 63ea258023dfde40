"""`heedful convert`: each way there is, and what is said where there is none."""

import json
from pathlib import Path

import ctranslate2
import pytest
import torch

from deterministic import fill
from echo_engine import tokenizers
from heedful.cli import main
from heedful.decoding.writing.translator import Translator
from heedful.models.bart import Bart, BartConfig
from heedful.models.folder import load_model, save_model, weights_of
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
    assert "model.safetensors" in converted(model, tmp_path / "theirs", "--to", "huggingface", capsys=capsys)
    converted(tmp_path / "theirs", tmp_path / "back", "--to", "heedful", capsys=capsys)
    first, again = load_model(model), load_model(tmp_path / "back")
    assert again.model.config == first.model.config
    assert all(torch.equal(weights_of(again.model)[name], tensor) for name, tensor in weights_of(first.model).items())
    assert again.tokenizers.source.fingerprint == first.tokenizers.source.fingerprint


def test_to_ctranslate2_gives_the_same_translations(model: Path, tmp_path: Path, capsys) -> None:
    converted(model, tmp_path / "ct2", "--to", "ctranslate2", capsys=capsys)
    texts = ["A dog.", "abc", "Who goes there?"]
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    source = tokenizers().source
    given = [source.pieces(source.encode(text)) for text in texts]
    found = theirs.translate_batch(given, beam_size=1, max_decoding_length=20)
    texts_there = [source.decode([source.id_of(piece) for piece in one.hypotheses[0]]) for one in found]
    assert texts_there == Translator.load(model, engine="torch").translate(texts, beam=1, max_len=20)


@pytest.mark.filterwarnings("ignore")
def test_without_a_tokenizer_it_says_so(tmp_path: Path, capsys) -> None:
    config = BartConfig(vocab_size=40, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=16)
    folder = save_model(tmp_path / "model", fill(Bart(config), dtype=torch.float32), None)
    assert main.run(["convert", str(folder), str(tmp_path / "theirs"), "--to", "huggingface"]) == 0
    assert "no tokenizer" in capsys.readouterr().err
    assert main.run(["convert", str(tmp_path / "theirs"), str(tmp_path / "back"), "--to", "heedful"]) == 0
    assert "will take ids" in capsys.readouterr().err
    assert load_model(tmp_path / "back").model.config == config


def test_what_has_no_place_is_refused_with_the_reason(model: Path, tmp_path: Path, capsys) -> None:
    config = UniversalConfig(SIZE, SIZE, d_model=8, n_steps=2, n_heads=2, d_ff=12)
    universal = save_model(tmp_path / "universal", fill(Universal(config), dtype=torch.float32), tokenizers())
    for to, words in (
        ("huggingface", "there is no family like 'universal'"),
        ("ctranslate2", "'universal'"),
    ):
        assert words in refused(universal, tmp_path / "out", "--to", to, capsys=capsys)
        assert not (tmp_path / "out").exists()
    assert "already" in refused(model, tmp_path / "out", "--to", "heedful", capsys=capsys)
    assert "no such folder" in refused(tmp_path / "none", tmp_path / "out", "--to", "heedful", capsys=capsys)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "whisper"}))
    assert "whisper" in refused(tmp_path / "other", tmp_path / "out", "--to", "heedful", capsys=capsys)
    assert "--to heedful" in refused(tmp_path / "other", tmp_path / "out", "--to", "onnx", capsys=capsys)
