"""The benchmarks of speed run, print their tables, and compare programs that give equal results.

Training and restricted attention have their own files.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from forked import run_file
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, learn_tokenizers

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "speed"
LINES = ["a dog runs", "two men sit on a bench", "the old man sleeps", "a cat on the street"]
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs heedful[hf]")


def run_benchmark(name: str, *args: str | Path) -> str:
    """Run a benchmark and return its standard output."""
    command = [sys.executable, BENCHMARKS / f"{name}.py", *args]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizers = learn_tokenizers(LINES, LINES, TokenizerConfig(vocab_size=300))
    torch.manual_seed(1)
    size = tokenizers.source.vocab_size
    network = Seq2Seq(Seq2SeqConfig(size, size, d_model=16, n_layers=1, n_heads=2, d_ff=32))
    return save_model(tmp_path_factory.mktemp("decode") / "model", network.eval(), tokenizers)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "test.en"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.mark.long
@needs_transformers
def test_decode_measures_all_programs_and_their_translations_agree(model: Path, text: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    args = ["--quick", "--rounds", "1", "--threads", "1", "--json", figures, "--text", text, "--reference", text]
    output = run_benchmark("decode", "--model", model, "--source", text, *args)
    assert "FAILED" not in output
    results = json.loads(figures.read_text())["results"]
    programs = [(result["program"]["key"], result["program"]["compute"]) for result in results]
    assert len(programs) == len(set(programs)) == 8
    for result in results:
        (cases,) = result["rounds"]
        assert len(cases) == 8
        assert all(case["tokens"] == 16 * case["sentences"] for case in cases if case["forced"])
        assert result["peak_memory"] > 20e6
    for name in ("heedful, auto", "CTranslate2, tuned by hand", "Hugging Face generate"):
        assert f"| {name} | float32 | 16 of 16 | 16 of 16 |" in output
    assert "| heedful, auto, shortlist | int8 | beam 5 |" in output


@pytest.mark.long
def test_parallel_decoding_gives_the_results_of_greedy_search(model: Path, text: Path) -> None:
    rows = run_benchmark("parallel_decoding", "--model", model, "--rounds", "1", "--source", text).splitlines()[2:]
    assert len(rows) == 5
    assert all(row.endswith(f"| {len(LINES)} of {len(LINES)} |") for row in rows)


@pytest.mark.long
@needs_transformers
def test_generate_measures_all_programs_and_the_texts_in_float32_agree() -> None:
    # --quick makes all sizes equal, so the other shapes would repeat that of GPT-2.
    shapes = ["--shapes", "gpt2", "llama"]
    output = run_benchmark("generate", "--quick", *shapes, "--threads", "1", "--batches", "1", "3")
    rows = [line for line in output.splitlines() if line.startswith("| ") and "parameters" not in line]
    assert len(rows) == 2 * 2 * 4  # shapes, batches, programs
    float32 = [row for row in rows if "int8" not in row]
    assert all(row.endswith(("| 1 of 1 |", "| 3 of 3 |")) for row in float32), output


@pytest.mark.long
def test_latency_measures_first_and_later_calls(tmp_path: Path) -> None:
    figures = tmp_path / "latency.json"
    output = run_benchmark("latency", "--runs", "1", "--commands", "translate", "--json", figures)
    cases = json.loads(figures.read_text())["cases"]
    assert [(case["command"], case["call"]) for case in cases] == [("translate", "first"), ("translate", "later")]
    assert all(len(case[key]) == 1 and case[key][0] > 0 for case in cases for key in ("seconds", "processor"))
    assert "| `heedful translate` | first |" in output


@pytest.mark.long
def test_loss_measures_every_method() -> None:
    output = run_benchmark("loss", "--tokens", "600", "--vocabularies", "500", "--rounds", "1")
    assert output.count("| 500 |") == 4  # with and without R-Drop, over the whole batch and over a few rows


@pytest.mark.long
def test_shards_takes_a_small_corpus_through_all_stages(tmp_path: Path) -> None:
    args = ["--gigabytes", "0.002", "--batches", "3", "--workers", "1", "--folder", tmp_path]
    output = run_benchmark("shards", *args)
    rows = [line.split("|") for line in output.splitlines() if line.startswith("|")]
    assert len(rows) == 7
    for row in rows[2:]:
        rss, pss = (int(cell.replace(",", "")) for cell in row[5:7])
        assert 0 < pss <= rss
    assert "pairs" in output.splitlines()[-1]
    assert not list(tmp_path.iterdir())


SCRIPTS = sorted(BENCHMARKS.glob("*.py"))


@pytest.mark.parametrize(
    "path", [path for path in SCRIPTS if "ArgumentParser" in path.read_text()], ids=lambda path: path.stem
)
def test_a_benchmark_shows_its_help(path: Path, tmp_path: Path) -> None:
    run_file(path, "--help", folder=tmp_path)


def test_scale_counts_the_parameters_of_the_published_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import scale

    assert sum(scale.sizes("base")) == pytest.approx(65e6, rel=0.05)  # table 3 of the paper
    assert sum(scale.sizes("big")) == pytest.approx(213e6, rel=0.05)
    assert 0 < scale.share_of_peak("base") < scale.share_of_peak("big") < 1
