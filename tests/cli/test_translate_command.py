"""`heedful translate`: as many lines out as in, each at once, and never an incomplete file under its final name."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import echo_engine
from deterministic import fill
from echo_engine import install, model_folder, tokenizers
from heedful.cli import input, main
from heedful.cli.input import PipeReader, TextInput
from heedful.cli.line_filter import one_line
from heedful.cli.output import open_output
from heedful.cli.translate import _models
from heedful.decoding.search.settings import Sampling
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.model_info import builtin_models
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig

FULL_DISK = Path("/dev/full")
HOSTILE = [
    "", " ", "\t", "A dog. Two cats.", "x" * 300, "a\rb", "a\x0bb\x0cc", "a\u2028b\u2029c", "a\x85b", "\x1c\x1d\x1e",
    "\0", "\ufeff", "e" + "\u0301" * 200, "👩‍👩‍👧", "你好。世界！", "שלום עולם", "\u202eabc", "'\"`|||\\",
    "<s></s><unk>", "▁ ▁", "1. 2. 3.", "a " * 200, "...", "\x7f\x1b[31m",
]  # fmt: skip


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the folder of a model whose engine returns its input."""
    install(monkeypatch.setattr)
    return model_folder(tmp_path / "echo")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = tokenizers().source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=24)
    folder = tmp_path_factory.mktemp("models") / "small"
    return save_model(folder, fill(Seq2Seq(config), dtype=torch.float32), tokenizers())


def translated(folder: Path, content: bytes, *options: str, tmp_path: Path) -> bytes:
    (tmp_path / "in").write_bytes(content)
    arguments = ["translate", str(tmp_path / "in"), "-m", str(folder), "--output", str(tmp_path / "out"), *options]
    assert main.run(arguments) == 0
    assert not (tmp_path / "out.part").exists()
    return (tmp_path / "out").read_bytes()


def start(folder: Path, *options: str, **streams: object) -> "subprocess.Popen[bytes]":
    """Start `heedful translate` with the echo engine in a child process."""
    command = [sys.executable, echo_engine.__file__, "translate", "-m", str(folder), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.run(["translate", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err
    return err


def test_a_file_line_by_line(echo: Path, tmp_path: Path) -> None:
    assert translated(echo, b"A dog.\n\nTwo cats.\r\nlast", tmp_path=tmp_path) == b"A dog.\n\nTwo cats.\nlast\n"


@pytest.mark.parametrize(
    ("target", "matching", "other"),
    [("zh", ["zh", "ZH", "zh-Hans"], "zh-Hant"), ("pt-BR", ["pt-BR", "pt_br", "pt"], "pt-PT"), ("fr", ["FR"], "fra")],
)
def test_languages_are_named_as_in_the_card_or_by_code(
    echo: Path, tmp_path: Path, target: str, matching: list[str], other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (echo / "README.md").write_text(f"---\nlanguage:\n- en\n- {target}\n---\n\n# A model\n")
    for to in matching:
        assert translated(echo, b"A dog.\n", "--to", to, tmp_path=tmp_path) == b"A dog.\n"
    refused([str(tmp_path / "in"), "-m", str(echo), "--to", other], capsys, f"--to {other}", "translates from en to")


def test_the_source_language_is_compared_with_the_card(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (echo / "README.md").write_text("---\nlanguage:\n- en\n- de\n---\n")
    assert translated(echo, b"A dog.\n", "--from", "en", "--to", "de", tmp_path=tmp_path) == b"A dog.\n"
    arguments = [str(tmp_path / "in"), "-m", str(echo), "--from", "fr"]
    refused(arguments, capsys, "--from fr", "translates from en to de")


def test_languages_choose_a_built_in_model() -> None:
    folders = builtin_models()
    assert _models([], None, None) == _models([], "en", None) == _models([], "EN", "fr") == [folders["en-fr"]]
    assert _models([], "fr", None) == _models([], None, "en") == [folders["fr-en"]]
    for source, target, expected in (
        ("en", "de", r"from 'en' into 'de' \(built in: en to fr, fr to en\)\. Train or convert"),
        (None, "french", r"into 'french' .*; did you mean 'fr'"),
        ("fr", "fr", "from 'fr' into 'fr'"),
    ):
        with pytest.raises(UserError, match=expected):
            _models([], source, target)


def test_a_sentence_as_the_file_gets_the_command_for_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    refused(["I am hungry."], capsys, "no such file", "echo 'I am hungry.' | heedful translate")


def test_empty_input_gives_empty_output(echo: Path, tmp_path: Path) -> None:
    assert translated(echo, b"", tmp_path=tmp_path) == b""
    assert translated(echo, b"\n", tmp_path=tmp_path) == b"\n"


def test_to_standard_output(echo: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "in").write_bytes("naïve\n".encode())
    assert main.run(["translate", str(tmp_path / "in"), "-m", str(echo)]) == 0
    assert capfdbinary.readouterr() == ("naïve\n".encode(), b"")


def test_compressed_text_and_a_byte_order_mark(echo: Path, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfa\nb\n"))
    output = tmp_path / "out"
    assert main.run(["translate", str(tmp_path / "in.gz"), "-m", str(echo), "--output", str(output)]) == 0
    assert output.read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("n_lines", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_hostile_lines_give_as_many_lines(n_lines: int, model: Path, tmp_path: Path) -> None:
    draw = random.Random(7)
    lines = [f"{draw.choice(HOSTILE)} {number}" * draw.randint(0, 2) for number in range(n_lines)]
    content = "".join(f"{line}\n" for line in lines).encode()
    options = ("--beam", "1", "--engine", "torch", "--set", "max_len=5")
    out = translated(model, content, *options, tmp_path=tmp_path)
    assert out.count(b"\n") == n_lines
    assert len(out.decode().splitlines()) == n_lines  # no line break was generated or copied
    blank = [number for number, line in enumerate(lines) if not line.strip()]
    assert all(out.split(b"\n")[number] == b"" for number in blank)


def test_order_is_kept_and_nothing_is_lost(echo: Path, tmp_path: Path) -> None:
    lines = [f"Line {number}. {'Some more words, ' * (number % 40)}end." for number in range(1_500)]
    content = "".join(f"{line}\n" for line in lines).encode()
    assert translated(echo, content, tmp_path=tmp_path) == content


def test_a_line_of_a_megabyte(echo: Path, tmp_path: Path) -> None:
    content = b"before\n" + b"A long line. " * 80_000 + b"\nafter\n"
    assert translated(echo, content, tmp_path=tmp_path) == content


@pytest.mark.parametrize("breaks", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_a_line_break_inside_a_line_becomes_a_space(echo: Path, tmp_path: Path, breaks: str) -> None:
    assert translated(echo, f"a{breaks}b\n".encode(), tmp_path=tmp_path) == b"a b\n"


def test_a_generated_line_break_becomes_a_space(echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tokenizers().source.encode("x\ny\u2028z")
    install(monkeypatch.setattr, echo_engine.EchoEngine(lambda ids: broken))
    assert translated(echo, b"a\nb\n", tmp_path=tmp_path) == b"x y z\nx y z\n"


# Latin-1, half of a surrogate pair, an overlong slash, an incomplete character
BAD = [b"caf\xe9", b"\xed\xa0\x80", b"\xc0\xaf", b"ab\xe4\xbd"]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_an_error_with_its_place(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: bytes
) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n" + bad + b"\nfour\n")
    output = tmp_path / "out"
    arguments = [str(tmp_path / "in"), "-m", str(echo), "--output", str(output)]
    byte = 8 + bad.index(min(bad, key=lambda code: code < 0x80))
    refused(arguments, capsys, "in: line 3", f"byte {byte}", "invalid UTF-8", "--on-bad-line keep|skip")
    assert not output.exists()
    assert (tmp_path / "out.part").read_bytes() == b"one\ntwo\n"  # the lines before it


def test_bad_lines_are_kept_or_skipped_and_counted(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b"one\n" + b"".join(bad + b"\n" for bad in BAD) + b"last\n"
    assert translated(echo, content, "--on-bad-line", "keep", tmp_path=tmp_path) == content
    assert "4 lines that could not be read, not UTF-8: copied" in capsys.readouterr().err
    assert translated(echo, content, "--on-bad-line", "skip", tmp_path=tmp_path) == b"one\n\n\n\n\nlast\n"
    assert "4 lines that could not be read, not UTF-8: left empty" in capsys.readouterr().err


def test_a_line_too_long_to_read(
    echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = input.read_lines
    monkeypatch.setattr(input, "read_lines", lambda path: read(path, max_bytes=100))
    content = b"one\n" + b"x" * 200 + b"\nthree\n"
    assert translated(echo, content, "--on-bad-line", "skip", tmp_path=tmp_path) == b"one\n\nthree\n"
    arguments = [str(tmp_path / "in"), "-m", str(echo), "--output", str(tmp_path / "out")]
    for way in ("error", "keep"):
        refused([*arguments, "--on-bad-line", way], capsys, "line 2", "at most 100 are read", "--on-bad-line skip")


def test_json_lines(echo: Path, tmp_path: Path) -> None:
    out = translated(echo, "ab\n\na\u2028b\n".encode(), "--format", "jsonl", tmp_path=tmp_path)
    first, second, third = [json.loads(line) for line in out.decode().splitlines()]
    assert first == {
        "text": "ab",
        "score": 0.0,
        "tokens": ["▁", "a", "b"],
        "complete": True,
        "source_tokens": ["▁", "a", "b"],
        "alignment": [[0, 0], [1, 1], [2, 2]],
    }
    assert (second["text"], second["tokens"]) == ("", [])
    assert third["text"] == "a b"


def test_json_lines_with_candidates_and_bad_lines(echo: Path, tmp_path: Path) -> None:
    options = ("--format", "jsonl", "--n-best", "2", "--on-bad-line", "skip")
    first, second = translated(echo, b"ab\n\xff\n", *options, tmp_path=tmp_path).splitlines()
    values = json.loads(first)
    assert values["text"] == "ab"
    assert [(one["text"], one["score"]) for one in values["candidates"]] == [("ab", 0.0), ("a", -1.0)]
    assert json.loads(second) == {"text": "", "error": "not UTF-8"}


def test_json_cannot_keep_bad_lines(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["-m", str(echo), "--format", "jsonl", "--on-bad-line", "keep"], capsys, "skip")


def test_candidates_as_text(echo: Path, tmp_path: Path) -> None:
    out = translated(echo, b"ab\ncd\n", "--n-best", "2", tmp_path=tmp_path)
    assert out.decode().splitlines() == [
        "0 ||| ab ||| 0.000000",
        "0 ||| a ||| -1.000000",
        "1 ||| cd ||| 0.000000",
        "1 ||| c ||| -1.000000",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "beem=3"], ["translate: unknown key 'beem'", "'beam'"]),
        (["--set", "sampling.temperature=0"], ["temperature"]),
        (["--n-best", "9"], ["n_best = 9"]),
        (["--beam", "0"], ["'beam'"]),
        (["--workers", "0"], ["workers = 0"]),
    ],
)
def test_wrong_settings(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    (tmp_path / "in").write_bytes(b"a\n")
    refused([str(tmp_path / "in"), "-m", str(echo), *options], capsys, *words)


def test_missing_files_and_folders(echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_bytes(b"a\n")
    there, absent = str(tmp_path / "in"), str(tmp_path / "absent")
    refused([absent, "-m", str(echo)], capsys, "absent: no such file")
    refused([there, "-m", absent], capsys, "absent: no such folder")
    refused([there, "-m", absent, "--workers", "2"], capsys, "absent: no such folder")
    words = f"{absent}/out: cannot be written: there is no folder {absent};"
    refused([there, "-m", str(echo), "--output", f"{absent}/out"], capsys, words)
    refused([there, "-m", str(echo), "--output", str(tmp_path)], capsys, "cannot be written: Is a directory")


def test_standard_input_that_is_closed(
    echo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    refused(["-m", str(echo)], capsys, "standard input is closed")


def test_samples_do_not_depend_on_the_arrival_of_lines(model: Path, tmp_path: Path) -> None:
    content = b"".join(b"line %d\n" % number for number in range(70))
    options = ("--engine", "torch", "--set", "sampling.seed=3", "max_len=6")
    from_file = translated(model, content, *options, tmp_path=tmp_path)
    os.mkfifo(tmp_path / "pipe")
    arguments = ["translate", str(tmp_path / "pipe"), "-m", str(model), "--output", str(tmp_path / "out2"), *options]
    writing = threading.Thread(target=drip, args=(tmp_path / "pipe", content))
    writing.start()
    assert main.run(arguments) == 0
    writing.join()
    assert (tmp_path / "out2").read_bytes() == from_file
    assert len(set(from_file.splitlines())) > 35  # and no two blocks have equal samples


@pytest.mark.filterwarnings("ignore:.* cut off")
def test_the_command_samples_what_python_samples(model: Path, tmp_path: Path) -> None:
    lines = [f"line {number}" if number % 7 else "" for number in range(70)]
    content = "".join(f"{line}\n" for line in lines).encode()
    options = ("--engine", "torch", "--set", "sampling.seed=3", "max_len=6")
    drawn = Translator.load(model, engine="torch").translate(lines, sampling=Sampling(seed=3), max_len=6)
    expected = "".join(f"{one_line(text)}\n" for text in drawn).encode()
    assert translated(model, content, *options, tmp_path=tmp_path) == expected
    assert translated(model, content, *options, "--workers", "2", tmp_path=tmp_path) == expected


def drip(path: Path, content: bytes) -> None:
    with path.open("wb", buffering=0) as pipe:
        for at in range(0, len(content), 100):
            pipe.write(content[at : at + 100])
            time.sleep(0.01)


def test_long_lines(echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = b"short\n" + b"word " * 40 + b"\n"
    assert translated(echo, content, tmp_path=tmp_path) == content
    cut = translated(echo, content, "--long", "truncate", tmp_path=tmp_path)
    assert cut.count(b"\n") == 2 and len(cut) < len(content)
    assert "1 line was cut to the 64 tokens" in capsys.readouterr().err
    arguments = [str(tmp_path / "in"), "-m", str(echo), "--long", "error", "--output", str(tmp_path / "other")]
    refused(arguments, capsys, "in: line 2 (byte 6): 201 tokens with the end of the source", "takes 64")


def test_translations_that_are_cut_off_are_counted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--engine", "torch", "--beam", "2", "--set", "max_len=3")
    out = translated(model, b"\nab\n\nabc\n", *options, "--format", "jsonl", tmp_path=tmp_path)
    assert [json.loads(line)["complete"] for line in out.splitlines()] == [True, False, True, False]
    words = "heedful: 2 translations were cut off at the length limit, without an end: "
    words += "the first is that of line 2."
    assert words in capsys.readouterr().err
    assert translated(model, b"\nab\n\nabc\n", *options, "--workers", "2", tmp_path=tmp_path).count(b"\n") == 4
    assert words in capsys.readouterr().err


GERMAN = "Am 3. Oktober kam er bzw. sie usw. nach Hause und blieb dann dort."


@pytest.mark.parametrize(
    ("card", "options", "n_pieces"),
    [
        ("", (), 4),
        ("---\nlanguage:\n- de\n- en\n---\n", (), 2),
        ("---\nlanguage:\n- de_AT\n---\n", (), 2),
        ("---\nlanguage:\n- en\n- de\n---\n", (), 4),
        ("---\nlanguage:\n- en\n- de\n---\n", ("--language", "de"), 2),
    ],
)
def test_sentences_are_split_by_the_language_of_the_card(
    echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: str, options: tuple[str, ...], n_pieces: int
) -> None:
    engine = echo_engine.EchoEngine()
    install(monkeypatch.setattr, engine)
    (echo / "README.md").write_text(card)
    assert translated(echo, GERMAN.encode(), *options, tmp_path=tmp_path).decode() == f"{GERMAN}\n"
    assert len(engine.asked) == n_pieces


def test_a_language_is_a_code(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["-m", str(echo), "--language", "3"], capsys, "--language 3", "such as de")


def test_an_old_output_stays_until_the_new_one_is_complete(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"old\n")
    (tmp_path / "bad").write_bytes(b"new\n\xff\n")
    refused([str(tmp_path / "bad"), "-m", str(echo), "--output", str(output)], capsys, "line 2")
    assert output.read_bytes() == b"old\n"
    assert translated(echo, b"new\n", tmp_path=tmp_path) == b"new\n"


def test_an_input_is_not_overwritten(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, link = tmp_path / "text", tmp_path / "link"
    text.write_bytes(b"all there is\n")
    link.symlink_to(text)
    for output in (text, link, tmp_path / ".." / tmp_path.name / "text"):
        refused([str(text), "-m", str(echo), "--output", str(output)], capsys, f"--output {output}", "would be lost")
    with text.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        refused(["-m", str(echo), "--output", str(text)], capsys, "would be lost")
    assert text.read_bytes() == b"all there is\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["echo", "link", "text"]


def test_a_missing_output_folder_is_named(echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_bytes(b"a\n")
    output = str(tmp_path / "absent" / "out")
    words = refused([str(tmp_path / "text"), "-m", str(echo), "--output", output], capsys, output, "there is no folder")
    assert ".part" not in words


def test_output_to_devices_and_pipes(echo: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\n")
    assert main.run(["translate", str(tmp_path / "in"), "-m", str(echo), "--output", "/dev/null"]) == 0
    assert not Path("/dev/null.part").exists()


@pytest.mark.skipif(not FULL_DISK.exists(), reason="this system has no /dev/full")
def test_a_full_disk(echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_bytes(b"a\n" * 50_000)
    refused([str(tmp_path / "in"), "-m", str(echo), "--output", str(FULL_DISK)], capsys, "/dev/full: No space left")
    with FULL_DISK.open("wb") as full:
        process = start(echo, str(tmp_path / "in"), stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"No space left" in err and b"Traceback" not in err


def test_a_reader_that_closes_the_output(echo: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"A line of text.\n" * 100_000)
    process = start(echo, str(tmp_path / "in"))
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"A line of text.\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""


def test_an_arriving_line_is_translated_at_once(echo: Path) -> None:
    process = start(echo)
    assert process.stdin is not None and process.stdout is not None
    for number in range(3):
        process.stdin.write(f"line {number}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline() == f"line {number}\n".encode()
    process.stdin.write(b"half a li")  # nothing to translate yet
    process.stdin.flush()
    time.sleep(0.2)
    process.stdin.write(b"ne\nand")
    process.stdin.flush()
    assert process.stdout.readline() == b"half a line\n"
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"and\n", b"", 0)


def test_lines_that_have_arrived_are_translated_together(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    process = start(folder, "--slow")  # each block takes 0.2 seconds
    started = time.monotonic()
    out, _ = process.communicate(b"line\n" * 5_000, timeout=60)
    assert out == b"line\n" * 5_000
    assert time.monotonic() - started < 60  # all blocks would take 1,000 seconds


def test_interrupted(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    process = start(folder)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"line\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"line\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    folder = model_folder(tmp_path / "model")
    terminal, theirs = pty.openpty()
    process = start(folder, stdin=theirs)
    os.close(theirs)
    assert process.stdout is not None
    os.write(terminal, b"typed\n")
    assert process.stdout.readline() == b"typed\n"
    os.write(terminal, b"\x04")  # Ctrl-D, once
    out, err = process.communicate(timeout=60)
    os.close(terminal)
    assert (out, process.returncode) == (b"", 0)
    assert err == b"type a line to translate it; Ctrl-D ends\n"


def test_two_workers_write_what_one_writes(model: Path, tmp_path: Path) -> None:
    content = "".join(f"{line}{number}\n" for number, line in enumerate(HOSTILE * 4)).encode()
    content = content.replace(b"\n\x00", b"\n") + b"\xff\n"
    options = ("--beam", "2", "--engine", "torch", "--set", "max_len=5", "--on-bad-line", "keep")
    one = translated(model, content, *options, tmp_path=tmp_path)
    two = translated(model, content, *options, "--workers", "2", tmp_path=tmp_path)
    assert one == two
    assert one.count(b"\n") == content.count(b"\n")


@pytest.mark.parametrize("size", [1, 3, 64])
def test_piped_lines_equal_the_lines_of_a_file(tmp_path: Path, size: int) -> None:
    content = b"one\n\n" + b"x" * 100 + b"\nlast"
    reading, writing = os.pipe()
    try:
        arriving = PipeReader(reading)
        assert not arriving.ready()
        for at in range(0, len(content), size):
            os.write(writing, content[at : at + size])
        os.close(writing)
        assert arriving.ready()
        assert arriving.peek(3) == b"one"
        assert [arriving.readline(50) for _ in range(7)] == [
            b"one\n", b"\n", b"x" * 50, b"x" * 50, b"\n", b"last", b"",
        ]  # fmt: skip
        assert arriving.ready()
    finally:
        os.close(reading)


def test_an_endless_line_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines before it are translated, and memory does not grow with it."""
    monkeypatch.setattr(input, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(input, "BLOCK", 500)
    with open("/dev/zero", "rb") as endless:
        arriving = PipeReader(endless.fileno())
        assert arriving.ready()
        assert len(arriving.peek(1 << 30)) <= 2000


def test_only_files_have_a_known_size(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"1234")
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"1234"))
    assert TextInput(tmp_path / "in").n_bytes == 4
    assert TextInput(tmp_path / "in.gz").n_bytes is None


def test_two_programs_that_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(UserError, match=r"out\.part: was removed .* another program"), open_output(path) as stream:
        stream.write(b"ours\n")
        (tmp_path / "out.part").rename(path)  # as the other program does when it ends first
    assert path.read_bytes() == b"ours\n"
