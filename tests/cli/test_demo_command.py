"""`heedful demo`: what it says before training, the files that it writes, and (in `make test-all`) a whole run."""

import re
from pathlib import Path
from typing import get_args

import pytest

from heedful.cli.demo import Pair, introduction, write_pairs
from heedful.cli.main import run
from heedful.data.demo import PAIRS, demo_corpus
from heedful.errors import UserError


def test_it_offers_the_directions_that_have_a_table() -> None:
    assert get_args(Pair) == PAIRS


def test_it_says_first_that_a_grammar_made_the_corpus() -> None:
    text = introduction(demo_corpus("en", "zh"), "en", "zh")
    assert all(
        words in text
        for words in ("32,829", "English to Chinese", "a small grammar generated", "dropout and label smoothing")
    )


def test_it_writes_the_pairs_in_training_order(tmp_path: Path) -> None:
    train = demo_corpus("fr", "en").train
    files = write_pairs(tmp_path / "demo" / "train", train, "fr", "en")
    assert (files.source.name, files.target.name) == ("train.fr", "train.en")
    assert files.source.read_text(encoding="utf-8").splitlines() == [example.source for example in train]
    assert files.target.read_text(encoding="utf-8").splitlines() == [example.target for example in train]


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--output: folder .*file/en-fr cannot be made: Not a directory"):
        write_pairs(tmp_path / "file" / "en-fr" / "train", [], "en", "fr")


@pytest.mark.long
def test_a_whole_run_translates_unseen_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    shares = [float(share) for share in re.findall(r"translated exactly right \(([\d.]+)%\)", captured.out)]
    assert len(shares) == 2
    assert shares[0] > 96, captured.out
    assert shares[1] > 88, captured.out
    assert (tmp_path / "en-fr" / "attention.svg").exists()
    assert captured.err.index("grammar") < captured.err.index("validation ")
