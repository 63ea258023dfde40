"""The languages of a run, from file names or settings, and how they change validation."""

from pathlib import Path

import pytest

from heedful import train
from heedful.errors import UserError
from heedful.training.run_config import Files, RunRecord, describe_languages, languages_in_names, languages_of
from heedful.training.settings import DataSettings, Settings
from small_tasks import CASES


def record(*corpora: tuple[str, ...], languages: tuple[str, ...] = ()) -> RunRecord:
    source = tuple(corpus[0] for corpus in corpora)
    target = tuple(corpus[1] for corpus in corpora if len(corpus) == 2)
    return RunRecord(Files(source, target), Settings(data=DataSettings(languages=languages)))


def of(*corpora: tuple[str, ...], languages: tuple[str, ...] = ()) -> tuple[Files, Settings]:
    made = record(*corpora, languages=languages)
    return made.files, made.settings


@pytest.mark.parametrize(
    ("corpora", "expected"),
    [
        ([("a/train.en", "a/train.de")], ("en", "de")),
        ([("train.tok.en.gz", "train.tok.zh-Hans.gz")], ("en", "zh-Hans")),
        ([("train.pt_BR", "train.en")], ("pt-BR", "en")),
        ([("train.en", "train.de"), ("more.en", "more.de")], ("en", "de")),
        ([("pairs.en-fr.tsv",)], ("en", "fr")),
        ([("pairs.en-fr.tsv.gz",)], ("en", "fr")),
        ([("train.en", "train.de"), ("more.de", "more.en")], None),
        ([("train.en", "train.en")], None),
        ([("source.txt", "target.txt")], None),
        ([("train.src", "train.tgt")], None),
        ([("train.en", "target.txt")], None),
        ([("pairs.tsv",)], None),
        ([], None),
    ],
)
def test_languages_are_read_from_file_names(corpora, expected):
    assert languages_in_names(corpora) == expected


def test_languages_that_are_set_override_file_names():
    named = ("train.en", "train.de")
    assert languages_of(*of(named)) == ("en", "de")
    assert languages_of(*of(named, languages=("en", "nl"))) == ("en", "nl")
    assert describe_languages(record(named, languages=("en", "nl"))) == "from en to nl"
    assert "from en to de, by the file names" in describe_languages(record(named))
    assert "data.languages" in describe_languages(record(("a.txt", "b.txt")))


@pytest.mark.parametrize("languages", [("en",), ("en", "de", "fr"), ("english", "de"), ("en", "d")])
def test_other_than_two_codes_are_refused(languages):
    with pytest.raises(UserError, match="two codes"):
        DataSettings(languages=languages)


def test_words_without_spaces_are_counted_in_validation(tmp_path: Path) -> None:
    """If BLEU took a Chinese sentence for one word, all checkpoints would score alike."""
    case = CASES["translation bart"]
    (tmp_path / "valid.en").write_text("the man runs\na cat sees the dog\n")
    (tmp_path / "valid.zh").write_text("这个男人在跑步。\n一只猫看见了那只狗。\n", encoding="utf-8")
    names = {"valid_source": tmp_path / "valid.en", "valid_target": tmp_path / "valid.zh"}
    steps = ["run.steps=1", "run.validate_every=1", "run.validation_sentences=2", "run.metric=bleu"]
    train(
        folder=tmp_path / "run",
        family=case.family,
        overrides=[*case.overrides, *steps],
        **case.files(tmp_path),  # type: ignore[arg-type]
        **names,  # type: ignore[arg-type]
    )
    assert "tok:zh" in (tmp_path / "run" / "best" / "README.md").read_text(encoding="utf-8")
