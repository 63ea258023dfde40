"""The benchmarks of translation quality start the runs that they describe, and train on nothing that is held out."""

import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.evaluation.mbr import mbr_decode

PROJECT = Path(__file__).parents[2]
RESULTS = PROJECT / "docs" / "results"
MULTI30K = PROJECT.parent / "shared" / "data" / "multi30k" / "tok"
Args = tuple[str | Path, ...]


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks" / "quality"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Args]:
    """The heedful commands that a benchmark would run. None is run; a translation is an empty file."""
    import diversify
    import multi30k

    recorded: list[Args] = []

    def record(*args: str | Path) -> None:
        recorded.append(args)
        if args[0] == "translate":
            Path(args[-1]).touch()

    for module in (diversify, multi30k):
        monkeypatch.setattr(module, "heedful", record)
    return recorded


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("train", "val", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text("a\n")
    return tmp_path


def test_diversify_translates_both_sides_and_pairs_each_line_with_its_translation(
    calls: list[Args], corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import diversify

    runs = corpus / "runs"
    runs.mkdir()
    args = ["diversify.py", "--data", str(corpus), "--recipe", "teacher.toml", "--runs", str(runs)]
    monkeypatch.setattr(sys, "argv", args)
    diversify.main()
    forward, backward = runs / "teacher-en-de", runs / "teacher-de-en"
    english, german = corpus / "train.en", corpus / "train.de"
    assert [args[1:6] for args in calls if args[0] == "train"] == [
        (forward, "--source", english, "--target", german),
        (backward, "--source", german, "--target", english),
    ]
    new_german, new_english = runs / "teacher-en-de.de", runs / "teacher-de-en.en"
    assert [args[1:] for args in calls if args[0] == "translate"] == [
        (english, "-m", forward, "--output", new_german),
        (german, "-m", backward, "--output", new_english),
    ]
    printed = capsys.readouterr().out
    assert printed == f"--init-from {forward} --more {english} {new_german} --more {new_english} {german}\n"
    calls.clear()
    diversify.main()
    assert not calls  # models and translations exist already


def test_diversify_both_ways_trains_one_model_that_translates_both_sides(
    calls: list[Args], corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import diversify

    runs = corpus / "runs"
    runs.mkdir()
    args = ["diversify.py", "--data", str(corpus), "--recipe", "teacher.toml", "--runs", str(runs), "--both-ways"]
    monkeypatch.setattr(sys, "argv", args)
    diversify.main()
    both, english, german = runs / "teacher-both", corpus / "train.en", corpus / "train.de"
    new_german, new_english = runs / "teacher-both.de", runs / "teacher-both.en"
    training = ("--source", english, german, "--target", german, english)
    validation = ("--valid-source", corpus / "val.en", "--valid-target", corpus / "val.de")
    assert {args[1:12] for args in calls if args[0] == "train"} == {(both, *training, *validation)}
    assert [args[1:] for args in calls if args[0] == "translate"] == [
        (english, "-m", both, "--output", new_german),
        (german, "-m", both, "--output", new_english),
    ]
    printed = capsys.readouterr().out
    assert printed.startswith(f"--init-from {both} --more {english} {new_german} --more {new_english} ")


def test_more_text_joins_the_training_text_and_not_validation(calls: list[Args], corpus: Path) -> None:
    import multi30k

    more = [(Path("one.en"), Path("one.de")), (Path("two.en"), Path("two.de"))]
    multi30k.train(corpus / "run", multi30k.Corpus(corpus, "en", "de"), "--recipe", "r.toml", more=more)
    ((_, _, *args),) = calls
    at = {name: args.index(name) for name in ("--source", "--target", "--valid-source", "--valid-target", "--recipe")}
    assert args[at["--source"] + 1 : at["--target"]] == [corpus / "train.en", Path("one.en"), Path("two.en")]
    assert args[at["--target"] + 1 : at["--valid-source"]] == [corpus / "train.de", Path("one.de"), Path("two.de")]
    assert args[at["--valid-source"] + 1 : at["--recipe"]] == [corpus / "val.en", "--valid-target", corpus / "val.de"]


def test_a_backwards_model_trains_on_reversed_targets_and_is_scored_forwards(
    calls: list[Args], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import multi30k

    (corpus / "train.de").write_text("ein hund .\n\n")
    folder = corpus / "runs" / "reversed"
    backwards = multi30k.Corpus(corpus, "en", "de", reversed_folder=folder)
    multi30k.train(corpus / "run", backwards, "--recipe", "r.toml")
    ((_, _, *args),) = calls
    files = [args[args.index(name) + 1] for name in ("--source", "--target", "--valid-source", "--valid-target")]
    assert files == [corpus / "train.en", folder / "train.de", corpus / "val.en", folder / "val.de"]
    assert (folder / "train.de").read_text() == ". hund ein\n\n"

    monkeypatch.setattr(multi30k, "heedful", lambda *args: Path(args[-1]).write_text(". hund ein\n"))
    scored = []
    monkeypatch.setattr(multi30k, "score_file", lambda output, *_: scored.append(output.read_text()) or [])
    for direction in (backwards, multi30k.Corpus(corpus, "en", "de")):
        multi30k.score([Path("model")], corpus, direction, "test", 5)
    assert scored == ["ein hund .\n", ". hund ein\n"]


def test_held_out_sentences_of_the_other_language_leave_the_training_text(tmp_path: Path) -> None:
    """Tatoeba is split by its English sentences, so a French one may be on both sides of the split."""
    import tatoeba

    files = {"train": "Hi.\tSalut !\tby A\nRun!\tCours !\tby B\n", "valid": "Hello.\tSalut !\tby C\n"}
    for name, content in files.items():
        (tmp_path / f"eng-fra.{name}.tsv.xz").write_bytes(lzma.compress(content.encode()))
    train, valid = (tmp_path / f"eng-fra.{name}.tsv.xz" for name in ("train", "valid"))
    for reverse, expected in ((True, "Cours !\tRun!\n"), (False, "Hi.\tSalut !\nRun!\tCours !\n")):
        held_out = tatoeba.write_pairs(valid, tmp_path, reverse)
        written = tatoeba.write_pairs(train, tmp_path, reverse, without=tatoeba.sources_of(held_out))
        assert written.read_text(encoding="utf-8") == expected


def test_new_on_both_sides_leaves_out_sources_with_a_translation_from_the_training_text(tmp_path: Path) -> None:
    from tatoeba import write_new

    (tmp_path / "train.tsv").write_text("Hi!\tSalut !\nRun!\tCours !\n", encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("Hello.\tBonjour.\nHello.\tSalut !\nStop!\tStop !\n", encoding="utf-8")
    new = write_new(tmp_path / "valid.tsv", tmp_path / "train.tsv")
    assert new.read_text(encoding="utf-8") == "Stop!\tStop !\n"


@pytest.fixture
def consensus(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Run benchmarks/quality/consensus.py on systems system0, system1, … with one translation each."""
    import consensus

    def run(translations: list[str], *args: str) -> list[str]:
        for number, line in enumerate(translations):
            (corpus / f"system{number}").mkdir(exist_ok=True)
            for split in ("val", "test"):
                (corpus / f"system{number}" / f"{split}.beam5.de").write_text(f"{line}\n")
        monkeypatch.chdir(corpus)
        monkeypatch.setattr(sys, "argv", ["consensus.py", "--data", str(corpus), "--keep", "kept", *args])
        consensus.main()
        return (corpus / "kept" / "test.beam5.de").read_text().splitlines()

    monkeypatch.setattr(consensus, "score_file", lambda *_: [{"value": 0.0}] * 2)
    return run


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_the_named_metric_decides_the_consensus(metric: str, consensus: Callable[..., list[str]]) -> None:
    translations = ["runs a dogs the", "the dog a", "dog dogs runs the"]
    expected = {name: mbr_decode([[line] for line in translations], metric=name) for name in ("bleu", "chrf")}
    assert expected["bleu"] != expected["chrf"]
    systems = ["system0", "system1", "system2"]
    assert consensus(translations, "--systems", *systems, "--metric", metric) == expected[metric]


def test_a_family_has_one_vote(consensus: Callable[..., list[str]]) -> None:
    translations = ["ein hund", "ein hund", "eine katze", "eine katze", "eine katze"]
    three = ["system2", "system3", "system4"]
    assert consensus(translations, "--systems", "system0", "system1", *three) == ["eine katze"]
    assert consensus(translations, "--systems", "system0", "system1", "--family", *three) == ["ein hund"]


def test_a_consensus_from_the_archive_equals_one_from_the_folders(
    consensus: Callable[..., list[str]],
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import translations as archives

    lines = ["ein hund", "ein hund", "eine katze", "eine katze", "eine katze"]
    from_folders = consensus(lines, "--systems", "system0", "system1", "--family", "system2", "system3", "system4")
    folders = [str(corpus / f"system{number}") for number in range(5)]
    files = ["val.beam5.de", "test.beam5.de"]
    monkeypatch.setattr(sys, "argv", ["translations.py", *folders, "--files", *files, "--output", "all.tsv.xz"])
    archives.main()
    archive = ["--archive", "all.tsv.xz"]
    assert consensus([], *archive, "--systems", "system[01]", "--family", "system[234]") == from_folders
    with pytest.raises(SystemExit, match=r"no system 'system7'; it has: system0, system1"):
        consensus([], *archive, "--systems", "system7")


def test_an_archive_returns_every_line_of_every_system(tmp_path: Path) -> None:
    from translations import read_archive, read_lines, write_archive

    texts = {"a": "ein hund\n\n von links \n", "b": "«Löwe»\n. \u2028 x\nnichts\n"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    lines = {name: read_lines(tmp_path / name) for name in texts}
    archive = {"val.beam5.de": lines, "test.beam5.de": {name: column[:2] for name, column in lines.items()}}
    write_archive(tmp_path / "archive.tsv.xz", archive)
    assert read_archive(tmp_path / "archive.tsv.xz") == archive
    for name, text in texts.items():
        assert "".join(f"{line}\n" for line in lines[name]) == text
    with pytest.raises(SystemExit, match="tab"):
        write_archive(tmp_path / "archive.tsv.xz", {"val": {"a": ["x\ty"]}})


def test_the_committed_archive_has_all_lines_of_the_systems_whose_scores_are_committed() -> None:
    from translations import read_archive

    archive = read_archive(RESULTS / "multi30k" / "translations.tsv.xz")
    n_lines = {name: {len(lines) for lines in systems.values()} for name, systems in archive.items()}
    assert n_lines == {"val.beam5.de": {1014}, "test_2016_flickr.beam5.de": {1000}}
    for systems in archive.values():
        assert len(systems) == 15
        assert all((RESULTS / "multi30k" / name / "scores.json").is_file() for name in systems)


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs the corpora in ../shared/data")
def test_the_archived_translations_have_the_committed_scores() -> None:
    from heedful.evaluation.metrics import bleu
    from multi30k import Corpus
    from translations import read_archive, read_lines

    corpus = Corpus(MULTI30K, "en", "de")
    archive = read_archive(RESULTS / "multi30k" / "translations.tsv.xz")
    for split in ("val", "test_2016_flickr"):
        references = read_lines(corpus.find(split, "de"))
        for name, lines in archive[f"{split}.beam5.de"].items():
            scores = json.loads((RESULTS / "multi30k" / name / "scores.json").read_text(encoding="utf-8"))["scores"]
            expected = scores[f"{split}, beam 5"][0]["value"]
            assert bleu(lines, [references], tokenize="none").value == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_a_learning_curve_is_equal_from_a_log_and_from_the_scores_of_the_run(
    metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multi30k import summarize

    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks" / "plots"))
    from curves import read_curve

    events = [{"event": "plan", "parameters": 7}]
    for step in (10, 20, 30):
        events.append({"event": "step", "step": step, "seconds": 6.0 * step, "tokens": step})
        events.append({"event": "validation", "step": step, "bleu": step + 0.5, "loss": 1 / step})
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    (tmp_path / "scores.json").write_text(json.dumps(summarize(tmp_path)))
    curve = read_curve(tmp_path / "scores.json", metric)
    assert curve == read_curve(tmp_path / "log.jsonl", metric)
    assert curve == [(step / 10, step + 0.5 if metric == "bleu" else 1 / step) for step in (10, 20, 30)]


def test_the_committed_learning_curve_is_drawn_from_the_committed_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks" / "plots"))
    import curves

    run = RESULTS / "multi30k" / "multi30k-en-de-3" / "scores.json"
    args = ["curves.py", f"seed 3, two cores={run}", "--output", str(tmp_path / "curve.svg")]
    monkeypatch.setattr(sys, "argv", args)
    curves.main()
    assert (tmp_path / "curve.svg").read_text() == (RESULTS / "multi30k.svg").read_text()
