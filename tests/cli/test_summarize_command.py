"""`heedful summarize`: long texts are reduced to their main sentences; the prefix precedes each text."""

from dataclasses import replace
from pathlib import Path

import pytest

from echo_engine import EchoEngine, install, model_folder, tokenizers
from heedful.cli import main
from heedful.decoding.segmentation import Segmenter
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> EchoEngine:
    engine = EchoEngine()
    install(monkeypatch.setattr, engine)
    return engine


def summarized(folder: Path, content: str, *options: str) -> str:
    (folder / "in").write_text(content)
    arguments = ["summarize", str(folder / "in"), "-m", str(folder), "--output", str(folder / "out"), *options]
    assert main.run(arguments) == 0
    return (folder / "out").read_text()


def test_one_line_in_one_line_out(echo: EchoEngine, tmp_path: Path) -> None:
    assert summarized(model_folder(tmp_path), "A dog.\n\nTwo cats.\n") == "A dog.\n\nTwo cats.\n"


def test_the_prefix_precedes_each_text(echo: EchoEngine, tmp_path: Path) -> None:
    assert summarized(model_folder(tmp_path), "A dog.\n\nCats.\n", "--prefix", "sum: ") == "sum: A dog.\n\nsum: Cats.\n"


LONG = "The dog ran. A cat sat by the dog. Rain fell on the dog and the cat. Who cares about umbrellas at all, Mister?"


def test_a_long_text_is_reduced_to_whole_sentences(echo: EchoEngine, tmp_path: Path, capsys) -> None:
    summary = summarized(model_folder(tmp_path), f"{LONG}\n", "--prefix", "sum: ").strip()
    assert summary.startswith("sum: ")
    assert len(summary) < 64
    kept = summary.removeprefix("sum: ")
    assert kept and all(sentence.strip(" .") in LONG for sentence in kept.split("."))
    assert "most important sentences" in capsys.readouterr().err


def test_other_values_of_long(echo: EchoEngine, tmp_path: Path, capsys) -> None:
    folder = model_folder(tmp_path)
    summary = summarized(folder, f"{LONG}\n", "--long", "truncate", "--prefix", "sum: ").strip()
    assert 50 < len(summary) < 64 and f"sum: {LONG}".startswith(summary)
    assert main.run(["summarize", str(folder / "in"), "-m", str(folder), "--long", "error"]) == 1
    error = capsys.readouterr().err
    assert "takes 64" in error and "--long extract" in error


def test_the_warning_about_cut_summaries_names_the_option(
    echo: EchoEngine, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = echo.search
    cut_off = lambda *args: [[replace(one, complete=False) for one in best] for best in search(*args)]  # noqa: E731
    monkeypatch.setattr(echo, "search", cut_off)
    summarized(model_folder(tmp_path), "A dog.\nCats.\n")
    error = capsys.readouterr().err
    assert "2 summaries were cut off at the length limit" in error
    assert "more tokens with --max-len" in error and "translat" not in error


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(UserError, match="prefix"):
        Segmenter(tokenizers().source, SourceLimit(8), prefix="summarize: ")
