"""A run reports every kind of line or example that it leaves out."""

from pathlib import Path

import pytest

from heedful import train
from heedful.data import Example
from heedful.errors import UserError
from heedful.text import SpecialIds, TokenizerConfig, learn_tokenizers
from heedful.training import Files, read_log
from heedful.training.data_preparation import prepare_data
from heedful.training.settings import DataSettings, read_settings
from heedful.training.tasks.translation import PairsValidator
from small_tasks import CASES

FEW = ["run.steps=1", "run.validate_every=1", "run.ema=0.0", "run.validation_sentences=0", "run.metric=loss"]
BAD = b"caf\xe9 man\n\n"  # Latin-1


def notes_by(kind: str, tmp_path: Path, *overrides: str, **files: object) -> list[str]:
    case, notes = CASES[kind], []
    given = files if case.kind in files else {**case.files(tmp_path), **files}
    train(
        folder=tmp_path / "run",
        family=case.family,
        overrides=[*case.overrides, *FEW, *overrides],
        listeners=[lambda event: notes.append(str(event.get("text")))],  # type: ignore[list-item]
        **given,  # type: ignore[arg-type]
    )
    return notes


def test_texts_without_a_label_are_counted(tmp_path: Path) -> None:
    labels = CASES["classification"].files(tmp_path)["labels"]
    assert isinstance(labels, Path)
    with labels.open("a") as file:
        file.write("a dog runs\t\n\tearly\n")
    assert "labels.tsv: 2 lines are left out (2 empty side)" in notes_by("classification", tmp_path, labels=labels)


def test_a_label_with_one_example_is_named(tmp_path: Path) -> None:
    """It is often the heading of a table."""
    labels = CASES["classification"].files(tmp_path)["labels"]
    assert isinstance(labels, Path)
    assert not any("one example" in text for text in notes_by("classification", tmp_path, labels=labels))
    labels.write_text("sentence\tlabel\n" + labels.read_text())
    notes = notes_by("classification", tmp_path / "other", labels=labels)
    assert "labels with a single example: 'label'. A heading, or misspelt?" in notes


@pytest.mark.parametrize(("kind", "files"), [("next_token", "text"), ("tagging", "tags")])
def test_unreadable_lines_are_counted(kind: str, files: str, tmp_path: Path) -> None:
    path = CASES[kind].files(tmp_path)[files]
    assert isinstance(path, Path)
    with path.open("ab") as file:
        file.write(BAD)
    notes = notes_by(kind, tmp_path, "data.on_bad_line=skip", **{files: path})
    assert f"{path.name}: 1 line is left out (1 invalid UTF-8)" in notes


@pytest.mark.parametrize("kind", ["next_token", "translation bart"])
def test_skipped_lines_of_validation_are_reported(kind: str, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_bytes(b"the man runs\n\nthe dog sees a cat\n\n" + BAD)
    names = {"valid": tmp_path / "valid.txt"}
    if kind != "next_token":
        (tmp_path / "valid.xx").write_bytes(b"RUNS MAN THE\n\nCAT A SEES DOG THE\n\nX\n\n")
        names = {"valid_source": tmp_path / "valid.txt", "valid_target": tmp_path / "valid.xx"}
    notes = notes_by(kind, tmp_path, **names)
    assert any(text.startswith("valid.txt") and "1 invalid UTF-8" in text for text in notes)


@pytest.mark.parametrize(
    ("kind", "line", "between", "batch_tokens"),
    [("classification", "{}\tlate\n", " ", 1), ("tagging", "{} x O\n\n", " x O\n", 20)],
)
def test_a_long_example_of_validation_is_counted(
    kind: str, line: str, between: str, batch_tokens: int, tmp_path: Path
) -> None:
    """It fits into no batch, so it is not in the loss."""
    texts = [["the"] * 25, *[["the", "dog"]] * 40]
    (tmp_path / "valid").write_text("".join(line.format(between.join(text)) for text in texts))
    changes = (f"data.batch_tokens={batch_tokens}", "run.micro_batches=1")
    notes = notes_by(kind, tmp_path, *changes, valid=tmp_path / "valid")
    assert any(text.startswith("1 of 41 ") and "is left out of the validation loss" in text for text in notes), notes


@pytest.mark.parametrize(("kind", "is_left_out"), [("translation bart", True), ("translation t5", False)])
def test_a_source_beyond_the_last_position_is_not_translated_and_ends_no_run(
    kind: str, is_left_out: bool, tmp_path: Path
) -> None:
    """Models with learned positions skip such sources in validation, and report it; other models translate them."""
    (tmp_path / "valid.txt").write_text("the man runs\n" + "the dog " * 30 + "\na cat sees the dog\n")
    (tmp_path / "valid.xx").write_text("RUNS MAN THE\nDOG THE\nDOG THE SEES CAT A\n")
    names = {"valid_source": tmp_path / "valid.txt", "valid_target": tmp_path / "valid.xx"}
    notes = notes_by(kind, tmp_path, "data.max_len=24", "run.validation_sentences=3", "data.max_doubtful=1.0", **names)
    told = "1 of the 3 sources that validation translates is longer than the 25 positions of this model"
    assert any(text.startswith(told) for text in notes) == is_left_out, notes


@pytest.mark.parametrize("n_sentences", [1, 2])
def test_a_later_source_replaces_one_beyond_the_last_position(n_sentences: int, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("the dog " * 30 + "\nthe man runs\na cat sees the dog\n")
    (tmp_path / "valid.xx").write_text("DOG THE\nRUNS MAN THE\nDOG THE SEES CAT A\n")
    names = {"valid_source": tmp_path / "valid.txt", "valid_target": tmp_path / "valid.xx"}
    changes = ("data.max_len=24", f"run.validation_sentences={n_sentences}", "run.metric=bleu")
    notes_by("translation bart", tmp_path, *changes, **names)
    [scored] = [e for e in read_log(tmp_path / "run" / "log.jsonl") if e["event"] == "validation"]
    assert [sample["source"] for sample in scored["samples"]] == ["the man runs", "a cat sees the dog"][:n_sentences]


def test_sources_that_are_all_beyond_the_last_position_are_refused() -> None:
    """The error comes before the first step, not at the first validation."""
    examples = [Example("the dog " * 10, "DOG THE")] * 3
    tokenizers = learn_tokenizers(["the dog"], ["DOG THE"], TokenizerConfig(vocab_size=300))
    sizes = {"data": DataSettings(batch_tokens=1000, max_len=200), "special_ids": SpecialIds(), "notify": print}
    PairsValidator(examples, tokenizers, last_position=5, n_sentences=0, **sizes)  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=r"all 3 sources for validation are longer than the 5 positions .*sentences = 0"
    ):
        PairsValidator(examples, tokenizers, last_position=5, n_sentences=2, **sizes)  # type: ignore[arg-type]


def test_pairs_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    """The number of pairs is reported without the skipped lines."""
    sources, targets = (["the dog runs", "a cat"] * 10, ["DOG", "CAT"] * 10)
    (tmp_path / "a.en").write_bytes("\n".join([*sources, "a man", ""]).encode() + b"\n" + BAD.strip() + b"\n")
    (tmp_path / "a.xx").write_text("\n".join([*targets, "", "MAN", "COFFEE"]) + "\n")
    notes: list[str] = []
    chosen = read_settings(None, ["tokenizer.vocab_size=300", "data.on_bad_line=skip", "data.max_doubtful=1"])
    corpora = Files.of(tmp_path / "a.en", tmp_path / "a.xx", None, None, None).corpora(chosen.data)
    valid = Files.of((), (), tmp_path / "a.en", tmp_path / "a.xx", None).valid_corpus()
    prepare_data(tmp_path / "run", corpora, valid, chosen, tokenizers=None, notify=notes.append)
    assert notes.count("a.en + a.xx: 3 lines are left out (2 empty side, 1 invalid UTF-8)") == 2  # of both files
    assert "training on 20 pairs" in notes
