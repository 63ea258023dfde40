"""Validation data without targets is rejected: its loss of 0 would be the best of all."""

from pathlib import Path

import numpy as np
import pytest

from heedful import train
from heedful.errors import UserError
from small_tasks import CASES

FEW = ["run.steps=1", "run.validate_every=1", "run.ema=0.0", "run.micro_batches=1"]
TEXTS = ["next_token", "next_token windows", "masked_tokens", "spans", "denoising"]


def refusal(kind: str, tmp_path: Path, *overrides: str, **files: object) -> str:
    case = CASES[kind]
    given = {**case.files(tmp_path / "files"), **files}
    with pytest.raises(UserError) as error:
        train(folder=tmp_path / "run", family=case.family, overrides=[*case.overrides, *FEW, *overrides], **given)  # type: ignore[arg-type]
    return str(error.value)


@pytest.mark.parametrize("kind", [*TEXTS, "tagging"])
def test_a_file_of_blank_lines_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n\n \n")
    message = refusal(kind, tmp_path, valid=tmp_path / "blank.txt")
    assert message.startswith(f"{tmp_path / 'blank.txt'}: ")
    assert "to validate" in message and "leave out --valid" in message


def test_columns_without_a_word_in_the_validation_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "remarks").write_text("# x O\n\n# y O\n")
    tags = tmp_path / "numbered"
    tags.write_text("".join(f"1\tman\tN\n2\truns{number}\tV\n\n" for number in range(40)))
    message = refusal("tagging", tmp_path, "data.columns=[2,3]", tags=tags, valid=tmp_path / "remarks")
    assert message.startswith(
        f"{tmp_path / 'remarks'}: no sentence to validate with, where data.columns = [2, 3] looks"
    )


def test_an_array_file_without_pictures_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 8, 8), np.uint8), y=np.zeros(0, np.int64))
    message = refusal("image_classification", tmp_path, valid=tmp_path / "none.npz")
    assert message.startswith(f"{tmp_path / 'none.npz'}: no image to validate with")


@pytest.mark.parametrize("rows", ["random", "packed"])
def test_a_share_that_holds_out_nothing_is_refused(rows: str, tmp_path: Path) -> None:
    changes = (f"data.rows={rows}", "data.hold_out_share=1e-6")
    assert "data.hold_out_share = 1e-06" in refusal("next_token windows", tmp_path, *changes)


@pytest.mark.parametrize(
    "kind", ["next_token", "denoising", "classification", "tagging", "image_classification", "translation bart"]
)
def test_hold_out_0_has_its_own_message(kind: str, tmp_path: Path) -> None:
    message = refusal(kind, tmp_path, "data.hold_out=0")
    option = "--valid-source and --valid-target" if kind == "translation bart" else "--valid"
    assert message == (
        f"data.hold_out = 0 leaves nothing to validate with: give {option}, or set data.hold_out to a higher number"
    )


def test_one_validation_token_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("man\n")
    changes = ("data.documents=lines", "tokenizer.kind=word")
    message = refusal("next_token windows", tmp_path, *changes, valid=tmp_path / "one.txt")
    assert "1 token for validation is too few" in message


@pytest.mark.parametrize("kind", ["masked_tokens", "spans"])
def test_texts_that_fit_into_no_batch_are_refused(kind: str, tmp_path: Path) -> None:
    """The training texts are short enough."""
    text, valid = tmp_path / "short.txt", tmp_path / "long.txt"
    text.write_text("a\n\nb\n\n" * 50)
    valid.write_text("a b " * 20)
    changes = ("data.batch_tokens=6", "data.documents=paragraphs", "tokenizer.kind=char")
    message = refusal(kind, tmp_path, *changes, text=text, valid=valid)
    assert (
        message.startswith("all 3 stretches of text for validation are longer") and "data.batch_tokens = 6" in message
    )


def test_sentences_that_fit_into_no_batch_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("man x O\n" * 25)
    message = refusal("tagging", tmp_path, "data.batch_tokens=20", valid=tmp_path / "long")
    assert message.startswith("all 1 sentences for validation are longer")


def test_a_validation_text_without_tokens_to_mask_is_rejected(tmp_path: Path) -> None:
    """The validation text has unknown words only."""
    (tmp_path / "unknown").write_text("★ ★\n", encoding="utf-8")
    changes = ("tokenizer.kind=word", "noise.whole_words=false")
    message = refusal("masked_tokens", tmp_path, *changes, valid=tmp_path / "unknown")
    assert message.startswith("nothing in the validation data can be masked")
