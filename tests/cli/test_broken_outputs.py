"""Outputs that are closed, full or broken end every command with a message."""

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
    folder = tmp_path_factory.mktemp("folders")
    bert_folder(folder / "bert", own_tokenizers())
    bert_folder(folder / "mood", own_tokenizers(), head="classify", labels=("bad", "good"))
    save_model(folder / "gpt", make_gpt(vocab_size=tokenizers().source.vocab_size), tokenizers())
    (folder / "in").write_text("a dog\n" * 200)
    return folder


COMMANDS = {
    "generate": ["generate", "a dog", "-m", "gpt", "--max-tokens", "5"],
    "fill": ["fill", "a [MASK] runs", "-m", "bert"],
    "classify": ["classify", "in", "-m", "mood"],
    "evaluate": ["evaluate", "--hypotheses", "in", "--target", "in", "--json"],
    "doctor": ["doctor", "--json"],
}


def run(arguments: list[str], redirections: str, program: str = "-m heedful", **options: object) -> tuple[int, str]:
    """Run a command whose outputs a shell has redirected; return its exit code and standard error."""
    line = f'"$0" {program} "$@" {redirections}'
    process = subprocess.run(
        ["sh", "-c", line, sys.executable, *arguments], stderr=subprocess.PIPE, check=False, **options
    )  # type: ignore[call-overload]
    return process.returncode, process.stderr.decode()


def translate(folder: Path, *options: str) -> list[str]:
    return ["translate", str(folder.parent / "in"), "-m", str(folder), *options]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_standard_output_is_reported(command: str, folders: Path) -> None:
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


def test_a_file_beyond_the_size_limit_of_the_system(echo: Path, tmp_path: Path) -> None:
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
            f"heedful: {name}: File too large: the file is larger than this system allows; raise the limit "
            "(`ulimit -f`), or write to another disk\n"
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
def test_a_full_disk_in_other_commands(command: list[str], name: str | None, folders: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "o")
    arguments = [word.replace("OUT", folder) for word in command]
    code, err = run(arguments, f"> {folder}", preexec_fn=at_most_a_kilobyte, cwd=folders)
    assert code == 1
    assert "Traceback" not in err
    assert err.startswith(
        "heedful: File too large" if name is None else f"heedful: {name.replace('OUT', folder)}: File"
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.EFBIG, errno.ENOSPC, errno.EDQUOT])
def test_a_failing_disk_is_reported(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch.setattr)
    folder = model_folder(tmp_path / "echo")
    (tmp_path / "in").write_text("a\n")

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(main, "_discard_buffered_output", lambda: None)
    assert main.run([*translate(folder), "--output", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"heedful: {tmp_path / 'out'}.part: {os.strerror(number)}: ")
    assert not (tmp_path / "out").exists()
