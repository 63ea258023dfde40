"""`heedful summarize`: what is too long is reduced to what matters, what the model is told stands before each text."""

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


def test_the_prefix_stands_before_each_text_and_before_nothing_else(echo: EchoEngine, tmp_path: Path) -> None:
    assert summarized(model_folder(tmp_path), "A dog.\n\nCats.\n", "--prefix", "sum: ") == "sum: A dog.\n\nsum: Cats.\n"


LONG = "The dog ran. A cat sat by the dog. Rain fell on the dog and the cat. Who cares about umbrellas at all, Mister?"


def test_a_long_text_is_reduced_to_whole_sentences(echo: EchoEngine, tmp_path: Path, capsys) -> None:
    found = summarized(model_folder(tmp_path), f"{LONG}\n", "--prefix", "sum: ").strip()
    assert found.startswith("sum: ")
    assert len(found) < 64
    kept = found.removeprefix("sum: ")
    assert kept and all(sentence.strip(" .") in LONG for sentence in kept.split("."))
    assert "most important sentences" in capsys.readouterr().err


def test_other_ways_with_long_texts(echo: EchoEngine, tmp_path: Path, capsys) -> None:
    folder = model_folder(tmp_path)
    found = summarized(folder, f"{LONG}\n", "--long", "truncate", "--prefix", "sum: ").strip()
    assert 50 < len(found) < 64 and f"sum: {LONG}".startswith(found)
    assert main.run(["summarize", str(folder / "in"), "-m", str(folder), "--long", "error"]) == 1
    error = capsys.readouterr().err
    assert "takes 64" in error and "--long extract" in error


def test_a_summary_that_is_cut_off_is_said_in_the_words_of_the_command(
    echo: EchoEngine, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = echo.search
    ended = lambda *given: [[replace(one, complete=False) for one in best] for best in whole(*given)]  # noqa: E731
    monkeypatch.setattr(echo, "search", ended)
    summarized(model_folder(tmp_path), "A dog.\nCats.\n")
    said = capsys.readouterr().err
    assert "2 summaries were cut off at the longest length allowed" in said
    assert "allowed by --max-len" in said and "translat" not in said


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(UserError, match="prefix"):
        Segmenter(tokenizers().source, SourceLimit(8), prefix="summarize: ")
