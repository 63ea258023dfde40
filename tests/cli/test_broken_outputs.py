"""Outputs that are closed, too small or broken end a command in words, whichever command writes."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import echo_engine
from echo_engine import install, model_folder, tokenizers
from encoder_models import bert_folder, own_tokenizers
from gpt_writers import make_gpt
from heedful.cli import main
from heedful.models.model_io import save_model

MANY = "a line of text that is written again and again\n" * 4000


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    (tmp_path / "in").write_text(MANY)
    return model_folder(tmp_path / "echo")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("folders")
    bert_folder(place / "bert", own_tokenizers())
    bert_folder(place / "mood", own_tokenizers(), head="classify", labels=("bad", "good"))
    save_model(place / "gpt", make_gpt(vocab_size=tokenizers().source.vocab_size), tokenizers())
    (place / "in").write_text("a dog\n" * 200)
    return place


COMMANDS = {
    "generate": ["generate", "a dog", "-m", "gpt", "--max-tokens", "5"],
    "fill": ["fill", "a [MASK] runs", "-m", "bert"],
    "classify": ["classify", "in", "-m", "mood"],
    "evaluate": ["evaluate", "--hypotheses", "in", "--target", "in", "--json"],
    "doctor": ["doctor", "--json"],
}


def run(arguments: list[str], redirections: str, program: str = "-m heedful", **how: object) -> tuple[int, str]:
    """The exit code, and what is said, of a command whose outputs a shell has redirected."""
    line = f'"$0" {program} "$@" {redirections}'
    done = subprocess.run(["sh", "-c", line, sys.executable, *arguments], stderr=subprocess.PIPE, check=False, **how)  # type: ignore[call-overload]
    return done.returncode, done.stderr.decode()


def translate(folder: Path, *options: str) -> list[str]:
    return ["translate", str(folder.parent / "in"), "-m", str(folder), *options]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_standard_output_is_said(command: str, folders: Path) -> None:
    code, err = run(COMMANDS[command], ">&-", cwd=folders)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("heedful: standard output is closed; ")


def test_translate_with_closed_streams(echo: Path, tmp_path: Path) -> None:
    code, err = run(translate(echo), ">&-", echo_engine.__file__)
    assert (code, err) == (1, "heedful: standard output is closed; name a file with --output, or redirect it: > FILE\n")
    for closed in (">&-", ">&- <&-", "2>&-", ">&- 2>&-"):
        assert run(translate(echo, "--output", str(tmp_path / "out")), closed, echo_engine.__file__) == (0, "")
        assert (tmp_path / "out").read_text() == MANY


def at_most_a_kilobyte() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


def test_a_file_that_may_not_be_so_large(echo: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for options, redirection, name in (
        (["--output", str(output)], "", f"{output}.part"),
        ([], f"> {output}", "standard output"),
    ):
        code, err = run(
            translate(echo, *options), redirection, echo_engine.__file__, preexec_fn=at_most_a_kilobyte, cwd=tmp_path
        )
        assert code == 1
        assert err == (
            f"heedful: {name}: File too large: no file may be that large here; raise the limit (`ulimit -f` shows it), "
            "or write to another disk\n"
        )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["classify", "in", "-m", "mood", "--output", "OUT"], "OUT.part"),
        (["embed", "in", "-m", "bert", "--output", "OUT.npy"], "OUT.npy.part"),
        (["evaluate", "--hypotheses", "in", "--target", "in", "--per-sentence", "OUT"], "OUT"),
        (["evaluate", "--hypotheses", "in", "--target", "in", "--worst", "50", "--json"], None),
    ],
    ids=["classify", "embed", "evaluate --per-sentence", "evaluate --json"],
)
def test_the_same_from_other_commands(command: list[str], name: str | None, folders: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "o")
    arguments = [word.replace("OUT", place) for word in command]
    code, err = run(arguments, f"> {place}", preexec_fn=at_most_a_kilobyte, cwd=folders)
    assert code == 1
    assert "Traceback" not in err
    assert err.startswith("heedful: File too large" if name is None else f"heedful: {name.replace('OUT', place)}: File")


@pytest.mark.parametrize("number", [errno.EIO, errno.EFBIG, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fails(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch.setattr)
    folder = model_folder(tmp_path / "echo")
    (tmp_path / "in").write_text("a\n")

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(main, "_forget_unwritten_output", lambda: None)
    assert main.run([*translate(folder), "--output", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"heedful: {tmp_path / 'out'}.part: {os.strerror(number)}: ")
    assert not (tmp_path / "out").exists()
