"""Validation data that asks for nothing is refused: a loss of nothing would be 0, the best of all."""

from pathlib import Path

import numpy as np
import pytest

from heedful.errors import UserError
from heedful.training.train import train
from small_tasks import CASES

FEW = ["run.steps=1", "run.validate_every=1", "run.ema=0.0", "run.micro_batches=1"]
TEXTS = ["next_token", "next_token windows", "masked_tokens", "spans", "denoising"]


def refusal(kind: str, tmp_path: Path, *overrides: str, **files: object) -> str:
    case = CASES[kind]
    given = {**case.files(tmp_path / "files"), **files}
    with pytest.raises(UserError) as refused:
        train(folder=tmp_path / "run", family=case.family, overrides=[*case.overrides, *FEW, *overrides], **given)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.mark.parametrize("kind", [*TEXTS, "tagging"])
def test_a_file_of_blank_lines_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n\n \n")
    said = refusal(kind, tmp_path, valid=tmp_path / "blank.txt")
    assert said.startswith(f"{tmp_path / 'blank.txt'}: ")
    assert "to validate" in said and "leave out --valid" in said


def test_columns_without_a_word_in_the_validation_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "remarks").write_text("# x O\n\n# y O\n")
    tags = tmp_path / "numbered"
    tags.write_text("".join(f"1\tman\tN\n2\truns{number}\tV\n\n" for number in range(40)))
    said = refusal("tagging", tmp_path, "data.columns=[2,3]", tags=tags, valid=tmp_path / "remarks")
    assert said.startswith(f"{tmp_path / 'remarks'}: no sentence to validate with, where data.columns = [2, 3] looks")


def test_an_array_file_without_pictures_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 8, 8), np.uint8), y=np.zeros(0, np.int64))
    said = refusal("image_classification", tmp_path, valid=tmp_path / "none.npz")
    assert said.startswith(f"{tmp_path / 'none.npz'}: no image to validate with")


@pytest.mark.parametrize("rows", ["random", "packed"])
def test_a_share_that_holds_out_nothing_is_refused(rows: str, tmp_path: Path) -> None:
    changes = (f"data.rows={rows}", "data.hold_out_share=1e-6")
    assert "data.hold_out_share = 1e-06" in refusal("next_token windows", tmp_path, *changes)


@pytest.mark.parametrize(
    "kind", ["next_token", "denoising", "classification", "tagging", "image_classification", "translation bart"]
)
def test_hold_out_0_has_its_own_message(kind: str, tmp_path: Path) -> None:
    said = refusal(kind, tmp_path, "data.hold_out=0")
    option = "--valid-source and --valid-target" if kind == "translation bart" else "--valid"
    assert said == (
        f"data.hold_out = 0 leaves nothing to validate with: give {option}, or set data.hold_out to a higher number"
    )


def test_one_validation_token_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("man\n")
    changes = ("data.documents=lines", "tokenizer.kind=word")
    said = refusal("next_token windows", tmp_path, *changes, valid=tmp_path / "one.txt")
    assert "1 token for validation is too few" in said


@pytest.mark.parametrize("kind", ["masked_tokens", "spans"])
def test_texts_that_fit_into_no_batch_are_refused(kind: str, tmp_path: Path) -> None:
    """Those for training are short enough."""
    text, valid = tmp_path / "short.txt", tmp_path / "long.txt"
    text.write_text("a\n\nb\n\n" * 50)
    valid.write_text("a b " * 20)
    changes = ("data.batch_tokens=6", "data.documents=paragraphs", "tokenizer.kind=char")
    said = refusal(kind, tmp_path, *changes, text=text, valid=valid)
    assert said.startswith("all 3 stretches of text for validation are longer") and "data.batch_tokens = 6" in said


def test_sentences_that_fit_into_no_batch_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("man x O\n" * 25)
    said = refusal("tagging", tmp_path, "data.batch_tokens=20", valid=tmp_path / "long")
    assert said.startswith("all 1 sentences for validation are longer")


def test_a_validation_text_without_tokens_to_mask_is_rejected(tmp_path: Path) -> None:
    """Unknown words alone."""
    (tmp_path / "unknown").write_text("★ ★\n", encoding="utf-8")
    changes = ("tokenizer.kind=word", "noise.whole_words=false")
    said = refusal("masked_tokens", tmp_path, *changes, valid=tmp_path / "unknown")
    assert said.startswith("nothing in the validation data can be masked")
