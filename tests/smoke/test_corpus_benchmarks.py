"""The benchmarks on real corpora ask for the runs that they describe, and train on nothing that is held out."""

import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.evaluation.consensus import consensus as heedful_consensus

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "quality"
Words = tuple[str | Path, ...]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Words]:
    """The commands that a benchmark gives, none of which is carried out: a translation is an empty file."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import diversify
    import multi30k

    given: list[Words] = []

    def note(*words: str | Path) -> None:
        given.append(words)
        if words[0] == "translate":
            Path(words[-1]).touch()

    for module in (diversify, multi30k):
        monkeypatch.setattr(module, "heedful", note)
    return given


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("train", "val", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text("a\n")
    return tmp_path


def test_a_model_each_way_translates_the_training_text_and_its_lines_stay_beside_it(
    calls: list[Words], corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import diversify

    runs = corpus / "runs"
    runs.mkdir()
    words = ["diversify.py", "--data", str(corpus), "--recipe", "teacher.toml", "--runs", str(runs)]
    monkeypatch.setattr(sys, "argv", words)
    diversify.main()
    there, back = runs / "teacher-en-de", runs / "teacher-de-en"
    english, german = corpus / "train.en", corpus / "train.de"
    trained = [words[1:6] for words in calls if words[0] == "train"]
    assert trained == [
        (there, "--source", english, "--target", german),
        (back, "--source", german, "--target", english),
    ]
    translated = [words[1:] for words in calls if words[0] == "translate"]
    more_german, more_english = runs / "teacher-en-de.de", runs / "teacher-de-en.en"
    assert translated == [
        (english, "-m", there, "--output", more_german),
        (german, "-m", back, "--output", more_english),
    ]
    said = capsys.readouterr().out
    assert said == f"--from {there} --more {english} {more_german} --more {more_english} {german}\n"
    calls.clear()
    diversify.main()
    assert not calls  # all of it is there


def test_one_model_learns_both_ways_and_translates_both(
    calls: list[Words], corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import diversify

    runs = corpus / "runs"
    runs.mkdir()
    words = ["diversify.py", "--data", str(corpus), "--recipe", "teacher.toml", "--runs", str(runs), "--both-ways"]
    monkeypatch.setattr(sys, "argv", words)
    diversify.main()
    both, english, german = runs / "teacher-both", corpus / "train.en", corpus / "train.de"
    more_german, more_english = runs / "teacher-both.de", runs / "teacher-both.en"
    learned = ("--source", english, german, "--target", german, english)
    judged = ("--valid-source", corpus / "val.en", "--valid-target", corpus / "val.de")
    assert {words[1:12] for words in calls if words[0] == "train"} == {(both, *learned, *judged)}
    assert [words[1:] for words in calls if words[0] == "translate"] == [
        (english, "-m", both, "--output", more_german),
        (german, "-m", both, "--output", more_english),
    ]
    assert capsys.readouterr().out.startswith(f"--from {both} --more {english} {more_german} --more {more_english} ")


def test_more_text_stands_beside_the_pairs_and_not_in_validation(calls: list[Words], corpus: Path) -> None:
    import multi30k

    more = [(Path("one.en"), Path("one.de")), (Path("two.en"), Path("two.de"))]
    multi30k.train(corpus / "run", multi30k.Corpus(corpus, "en", "de"), "--recipe", "r.toml", more=more)
    ((_, _, *words),) = calls
    at = {word: words.index(word) for word in ("--source", "--target", "--valid-source", "--valid-target", "--recipe")}
    assert words[at["--source"] + 1 : at["--target"]] == [corpus / "train.en", Path("one.en"), Path("two.en")]
    assert words[at["--target"] + 1 : at["--valid-source"]] == [corpus / "train.de", Path("one.de"), Path("two.de")]
    assert words[at["--valid-source"] + 1 : at["--recipe"]] == [corpus / "val.en", "--valid-target", corpus / "val.de"]


def test_a_model_that_writes_backwards_learns_turned_targets_and_is_scored_forwards(
    calls: list[Words], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import multi30k

    (corpus / "train.de").write_text("ein hund .\n\n")
    turned = corpus / "runs" / "turned"
    backwards = multi30k.Corpus(corpus, "en", "de", turned=turned)
    multi30k.train(corpus / "run", backwards, "--recipe", "r.toml")
    ((_, _, *words),) = calls
    learned = [words[words.index(word) + 1] for word in ("--source", "--target", "--valid-source", "--valid-target")]
    assert learned == [corpus / "train.en", turned / "train.de", corpus / "val.en", turned / "val.de"]
    assert (turned / "train.de").read_text() == ". hund ein\n\n"

    monkeypatch.setattr(multi30k, "heedful", lambda *words: Path(words[-1]).write_text(". hund ein\n"))
    scored = []
    monkeypatch.setattr(multi30k, "score_file", lambda output, *_: scored.append(output.read_text()) or [])
    for one in (backwards, multi30k.Corpus(corpus, "en", "de")):
        multi30k.score([Path("model")], corpus, one, "test", 5)
    assert scored == ["ein hund .\n", ". hund ein\n"]


def test_what_is_held_out_of_the_other_language_leaves_the_training_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tatoeba is split by its English sentences: a French one may stand on both sides."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tatoeba

    files = {"train": "Hi.\tSalut !\tby A\nRun!\tCours !\tby B\n", "valid": "Hello.\tSalut !\tby C\n"}
    for name, content in files.items():
        (tmp_path / f"eng-fra.{name}.tsv.xz").write_bytes(lzma.compress(content.encode()))
    train, valid = (tmp_path / f"eng-fra.{name}.tsv.xz" for name in ("train", "valid"))
    for reverse, expected in ((True, "Cours !\tRun!\n"), (False, "Hi.\tSalut !\nRun!\tCours !\n")):
        held_out = tatoeba.write_pairs(valid, tmp_path, reverse)
        written = tatoeba.write_pairs(train, tmp_path, reverse, without=tatoeba.sources_of(held_out))
        assert written.read_text(encoding="utf-8") == expected


def test_sentences_that_are_new_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from tatoeba import write_new

    (tmp_path / "train.tsv").write_text("Hi!\tSalut !\nRun!\tCours !\n", encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("Hello.\tBonjour.\nHello.\tSalut !\nStop!\tStop !\n", encoding="utf-8")
    new = write_new(tmp_path / "valid.tsv", tmp_path / "train.tsv")
    assert new.read_text(encoding="utf-8") == "Stop!\tStop !\n"


@pytest.fixture
def chosen(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What benchmarks/quality/consensus.py chooses for a line of test, of what systems say."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import consensus

    def choose(said: list[str], *words: str) -> list[str]:
        for number, line in enumerate(said):
            (corpus / f"system{number}").mkdir(exist_ok=True)
            for split in ("val", "test"):
                (corpus / f"system{number}" / f"{split}.beam5.de").write_text(f"{line}\n")
        monkeypatch.chdir(corpus)
        monkeypatch.setattr(sys, "argv", ["consensus.py", "--data", str(corpus), "--keep", "kept", *words])
        consensus.main()
        return (corpus / "kept" / "test.beam5.de").read_text().splitlines()

    monkeypatch.setattr(consensus, "score_file", lambda *_: [{"value": 0.0}] * 2)
    return choose


@pytest.mark.parametrize("likeness", ["bleu", "chrf"])
def test_a_consensus_is_taken_by_the_likeness_that_is_named(likeness: str, chosen: Callable[..., list[str]]) -> None:
    said = ["runs a dogs the", "the dog a", "dog dogs runs the"]
    by = {one: heedful_consensus([[line] for line in said], likeness=one) for one in ("bleu", "chrf")}
    assert by["bleu"] != by["chrf"]
    assert chosen(said, "--systems", "system0", "system1", "system2", "--likeness", likeness) == by[likeness]


def test_a_family_has_one_vote(chosen: Callable[..., list[str]]) -> None:
    said = ["ein hund", "ein hund", "eine katze", "eine katze", "eine katze"]
    three = ["system2", "system3", "system4"]
    assert chosen(said, "--systems", "system0", "system1", *three) == ["eine katze"]
    assert chosen(said, "--systems", "system0", "system1", "--family", *three) == ["ein hund"]
