"""Unreadable lines in several commands: what is written in their place, and the messages about them."""

import json
from pathlib import Path

import pytest

from ct2_models import count_conversions, make_model
from echo_engine import install, model_folder, tokenizers
from heedful.cli import main
from heedful.data.lines import MAX_LINE_BYTES
from heedful.decoding import Translator
from heedful.errors import UserError
from heedful.models.model_io import save_model


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    install(monkeypatch.setattr)
    return model_folder(tmp_path / "echo")


def translated(folder: Path, content: bytes, *options: str) -> bytes:
    parent = folder.parent
    (parent / "in").write_bytes(content)
    arguments = ["translate", str(parent / "in"), "-m", str(folder), "--output", str(parent / "out"), *options]
    assert main.run(arguments) == 0
    return (parent / "out").read_bytes()


def test_a_kept_line_among_several_candidates(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = translated(echo, b"ab\n\xff\xfe!\ncd\n", "--n-best", "2", "--on-bad-line", "keep")
    assert output.splitlines() == [
        b"0 ||| ab ||| 0.000000", b"0 ||| a ||| -1.000000", b"1 ||| \xff\xfe! ||| 0.000000",
        b"2 ||| cd ||| 0.000000", b"2 ||| c ||| -1.000000",
    ]  # fmt: skip
    assert "1 line that could not be read, not UTF-8: copied" in capsys.readouterr().err
    output = translated(echo, b"ab\n\xff\n", "--n-best", "2", "--on-bad-line", "skip")
    assert output.splitlines()[2:] == [b"1 |||  ||| 0.000000"]


def test_a_line_that_is_too_long_is_reported(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = b"a\n" + b"b" * (MAX_LINE_BYTES + 1) + b"\n\xff\nc\n\xff\n"
    output = translated(echo, content, "--format", "jsonl", "--on-bad-line", "skip")
    errors = [json.loads(line).get("error") for line in output.splitlines()]
    assert errors == [None, "longer than 16 MB", "not UTF-8", None, "not UTF-8"]
    err = capsys.readouterr().err
    assert "1 line that could not be read, longer than 16 MB: left empty" in err
    assert "2 lines that could not be read, not UTF-8: left empty" in err


def test_int8_says_why_ctranslate2_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_conversions(monkeypatch)
    size = tokenizers().source.vocab_size
    model = make_model(source_vocab_size=size, target_vocab_size=size)
    translator = Translator.load(save_model(tmp_path / "model", model, tokenizers()), compute="int8")
    with pytest.raises(UserError, match=r"only CTranslate2 has it, and it cannot do this: it gives the probability of"):
        translator.translate("a", beam=3, min_len=3)
    with pytest.raises(UserError, match=r"cannot do this: its random numbers"):
        translator.translate("a", sampling={"seed": 1})


def test_evaluate_without_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_text("a\n")
    lines, absent = str(tmp_path / "lines"), str(tmp_path / "absent")
    assert main.run(["evaluate", "-m", absent, "--source", lines, "--target", lines]) == 1
    assert "absent: no such folder" in capsys.readouterr().err
    assert main.run(["evaluate", "--hypotheses", lines, "--target", lines, "--against", absent]) == 1
    assert "absent: no such file or folder" in capsys.readouterr().err
