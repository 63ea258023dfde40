"""benchmarks/speed/decode.py runs, and all programs that it compares write the same."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, learn_tokenizers

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "speed" / "decode.py"
LINES = ["a dog runs", "two men sit on a bench", "the old man sleeps", "a cat on the street"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizers = learn_tokenizers(LINES, LINES, TokenizerConfig(vocab_size=300))
    torch.manual_seed(1)
    size = tokenizers.source.vocab_size
    made = Seq2Seq(Seq2SeqConfig(size, size, d_model=16, n_layers=1, n_heads=2, d_ff=32))
    return save_model(tmp_path_factory.mktemp("decode") / "model", made.eval(), tokenizers)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs heedful[hf]")
def test_the_programs_are_measured_and_agree(model: Path, tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("\n".join(LINES) + "\n")
    command = [sys.executable, str(BENCHMARK), "--model", str(model), "--source", str(tmp_path / "test.en")]
    options = ["--quick", "--rounds", "1", "--threads", "1", "--json", str(tmp_path / "figures.json")]
    text = str(tmp_path / "test.en")
    options += ["--text", text, "--reference", text]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    programs = [(one["program"]["key"], one["program"]["compute"]) for one in figures["results"]]
    assert len(programs) == len(set(programs)) == 8
    for one in figures["results"]:
        (answers,) = one["rounds"]
        assert len(answers) == 8
        assert all(answer["tokens"] == 16 * answer["sentences"] for answer in answers if answer["forced"])
        assert one["peak_memory"] > 20e6
    for name in ("heedful, auto", "CTranslate2, tuned by hand", "Hugging Face generate"):
        assert f"| {name} | float32 | 16 of 16 | 16 of 16 |" in done.stdout
    assert "| heedful, auto, shortlist | int8 | beam 5 |" in done.stdout


def test_look_ahead_is_measured_and_greedy(model: Path, tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("\n".join(LINES) + "\n")
    command = [sys.executable, str(BENCHMARK.with_name("lookahead.py")), "--model", str(model), "--rounds", "1"]
    done = subprocess.run([*command, "--source", str(tmp_path / "test.en")], capture_output=True, text=True, check=True)
    rows = done.stdout.splitlines()[2:]
    assert len(rows) == 5
    assert all(row.endswith(f"| {len(LINES)} of {len(LINES)} |") for row in rows)


def test_the_loss_is_measured_in_every_way() -> None:
    command = [sys.executable, str(BENCHMARK.with_name("loss.py")), "--tokens", "600", "--vocabularies", "500"]
    done = subprocess.run([*command, "--rounds", "1"], capture_output=True, text=True, check=True)
    assert done.stdout.count("| 500 |") == 4  # with R-Drop and without, logits as a whole and in chunks
