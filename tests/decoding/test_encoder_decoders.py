"""The commands translate with, evaluate and refuse every encoder-decoder alike."""

import json
from pathlib import Path

import pytest
import torch

from ct2_models import VOCAB, make_engine, some_requests, tie, with_opinions
from deterministic import fill
from echo_engine import tokenizers
from heedful.cli.main import run
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.bart import Bart, BartConfig
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_info import ENCODER_DECODERS, read_source_limit
from heedful.models.model_io import FAMILIES, save_model
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import Universal, UniversalConfig
from heedful.text.special_ids import SpecialIds

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


WIDE = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48}
MAPPED = {
    "bart": lambda: Bart(BartConfig(VOCAB, max_len=40, **WIDE)),
    "bart, scaled": lambda: Bart(BartConfig(VOCAB, max_len=40, scaled_embedding=True, activation="relu", **WIDE)),
    "t5": lambda: T5(T5Config(VOCAB, d_head=6, n_buckets=8, max_distance=10, **WIDE)),
    "t5 1.1": lambda: T5(T5Config(VOCAB, d_head=8, tied=False, activation="geglu", n_decoder_layers=1, **WIDE)),
    "t5 tied, not divided": lambda: T5(T5Config(VOCAB, d_head=8, scaled=False, activation="geglu", **WIDE)),
}


@pytest.mark.parametrize("case", MAPPED)
def test_ctranslate2_finds_what_torch_finds(case: str, tmp_path: Path) -> None:
    model = with_opinions(fill(MAPPED[case](), dtype=torch.float32))
    fast, slow = make_engine(model, tmp_path / "ct2"), TorchEngine(model, lanes=1)
    requests = some_requests(30)
    for settings in (SearchSettings(beam=1, max_len=16), SearchSettings(beam=4, n_best=2, max_len=16)):
        found, wanted = fast.search(requests, settings), slow.search(requests, settings)
        for request, theirs, ours in zip(requests, found, wanted, strict=True):
            assert theirs[0].ids == ours[0].ids or tie(model, request, theirs[0], ours[0]) < 1e-4
            assert [each.normalized_score for each in theirs] == pytest.approx(
                [each.normalized_score for each in ours], abs=1e-3
            )
        assert len({tuple(best[0].ids) for best in found}) > 3


def test_the_engine_is_chosen_by_what_maps(folder: Path, request: pytest.FixtureRequest) -> None:
    if "universal" in request.node.name:
        with pytest.raises(UserError, match="no conversion for the family 'universal'"):
            Translator.load(folder, engine="ctranslate2")
        assert Translator.load(folder).engine.name == "torch"
    else:
        translator = Translator.load(folder)
        assert translator.engine.name == "auto"
        slow = Translator.load(folder, engine="torch")
        assert translator.translate("A dog.", beam=1, max_len=9) == slow.translate("A dog.", beam=1, max_len=9)


def test_barts_reach_ends_with_its_positions(tmp_path: Path) -> None:
    special_ids = SpecialIds(source_bos=True, force_bos=True)
    for model, n_taken in (
        (Bart(BartConfig(SIZE, max_len=24, **SHAPE)), 24),
        (Bart(BartConfig(SIZE, max_len=24, special_ids=special_ids, **SHAPE)), 23),
    ):
        save_model(tmp_path / "bart", fill(model, dtype=torch.float32), tokenizers())
        reach = read_source_limit(tmp_path / "bart")
        assert (reach.max_len, reach.is_hard) == (n_taken, True)
        translator = Translator.load(tmp_path / "bart")
        assert translator.translate("x" * 60, beam=1, max_len=5)  # split, each part with its marks within the table


def test_who_writes_and_who_does_not(tmp_path: Path) -> None:
    assert set(ENCODER_DECODERS) < set(FAMILIES)
    gpt = Gpt(GptConfig(SIZE, n_layers=1, **SHAPE))
    save_model(tmp_path / "gpt", fill(gpt, dtype=torch.float32), tokenizers())
    with pytest.raises(UserError, match="heedful generate"):
        Translator.load(tmp_path / "gpt")
