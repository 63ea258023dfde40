"""Every encoder-decoder is translated with, evaluated and refused by the same commands."""

import json
from pathlib import Path

import pytest
import torch

from deterministic import fill
from echo_engine import tokenizers
from heedful.cli.main import run
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.bart import Bart, BartConfig
from heedful.models.find import ENCODER_DECODERS, read_reach
from heedful.models.folder import FAMILIES, save_model
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.marks import MarksConfig
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import Universal, UniversalConfig

SIZE = tokenizers().source.vocab_size
SHAPE = {"d_model": 8, "n_heads": 2, "d_ff": 12}
MODELS = {
    "bart": lambda: Bart(BartConfig(SIZE, n_layers=1, max_len=24, **SHAPE)),
    "t5": lambda: T5(T5Config(SIZE, n_layers=1, d_head=4, **SHAPE)),
    "universal": lambda: Universal(UniversalConfig(SIZE, SIZE, n_steps=2, **SHAPE)),
}


@pytest.fixture(params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", fill(MODELS[request.param](), dtype=torch.float32), tokenizers())


def test_lines_go_in_and_come_out(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("A dog.\n\nTwo cats sit there.\n")
    arguments = [str(tmp_path / "in"), "-m", str(folder), "--set", "max_len=8"]
    for beam in ("1", "3"):
        assert run(["translate", *arguments, "--output", str(tmp_path / "out"), "--beam", beam]) == 0
        assert (tmp_path / "out").read_text().count("\n") == 3
    assert run(["translate", *arguments, "--format", "jsonl"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["tokens"] and first["alignment"]
    files = ["--source", str(tmp_path / "in"), "--target", str(tmp_path / "in")]
    assert run(["evaluate", "-m", str(folder), *files, "--beam", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["systems"][0]["perplexity"] > 1


def test_ctranslate2_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(UserError, match="does not map the family"):
        Translator.load(folder, engine="ctranslate2")


def test_barts_reach_ends_with_its_positions(tmp_path: Path) -> None:
    marks = MarksConfig(first_id=2)
    for model, n_taken in (
        (Bart(BartConfig(SIZE, max_len=24, **SHAPE)), 24),
        (Bart(BartConfig(SIZE, max_len=24, marks=marks, **SHAPE)), 23),
    ):
        save_model(tmp_path / "bart", fill(model, dtype=torch.float32), tokenizers())
        reach = read_reach(tmp_path / "bart")
        assert (reach.max_len, reach.ends_there) == (n_taken, True)
        translator = Translator.load(tmp_path / "bart")
        assert translator.translate("x" * 60, beam=1, max_len=5)  # split, each part with its marks within the table


def test_who_writes_and_who_does_not(tmp_path: Path) -> None:
    assert set(ENCODER_DECODERS) < set(FAMILIES)
    gpt = Gpt(GptConfig(SIZE, n_layers=1, **SHAPE))
    save_model(tmp_path / "gpt", fill(gpt, dtype=torch.float32), tokenizers())
    with pytest.raises(UserError, match="heedful generate"):
        Translator.load(tmp_path / "gpt")
