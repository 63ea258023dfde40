"""`heedful check`: its output, its exit code, and which files form a pair."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.cli import progress
from heedful.cli.check import group
from heedful.cli.main import run
from heedful.errors import UserError


def write(folder: Path, *names: str, text: str = "one\ntwo\n") -> list[Path]:
    for name in names:
        (folder / name).write_text(text)
    return [folder / name for name in names]


def grouped(paths: list[Path]) -> list[list[str]]:
    return [[path.name for path in corpus.paths] for corpus in group(paths)]


def test_two_text_files_are_a_pair_whatever_their_names(tmp_path: Path) -> None:
    assert grouped(write(tmp_path, "left", "right.txt")) == [["left", "right.txt"]]


def test_more_text_files_are_paired_by_name(tmp_path: Path) -> None:
    names = ["train.en", "valid.en.gz", "train.de", "more.tsv", "valid.de"]
    paths = write(tmp_path, *(name for name in names if not name.endswith("gz")))
    paths.insert(1, tmp_path / "valid.en.gz")
    paths[1].write_bytes(gzip.compress(b"one\ntwo\n"))
    assert grouped(paths) == [["train.en", "train.de"], ["valid.en.gz", "valid.de"], ["more.tsv"]]


def test_one_text_file_is_text(tmp_path: Path) -> None:
    (corpus,) = group(write(tmp_path, "a.txt"))
    assert corpus.content == "text"


def test_text_files_that_make_no_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"valid\.en: several text files are paired by name"):
        group(write(tmp_path, "train.en", "train.de", "valid.en"))


def test_a_line_without_a_label_is_reported_with_the_format(tmp_path: Path, capsys) -> None:
    [path] = write(tmp_path, "labels.tsv", text="a dog\tgood\na cat\n")
    assert run(["check", "--content", "labels", str(path)]) == 1
    assert "Each line needs text TAB label" in capsys.readouterr().out


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.en: named twice"):
        group([*write(tmp_path, "a.en"), tmp_path / "a.en"])


def test_a_terminal_with_ascii_encoding(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heedful", "check", *poisoned(tmp_path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"")
    assert rb"Probably Latin-1" in done.stdout


def test_content_decides_where_a_name_does_not(tmp_path: Path) -> None:
    paths = write(tmp_path, "a.txt", "b.txt", text="good\tyes\n")
    assert [corpus.content for corpus in group(paths, content="text")] == ["text", "text"]
    assert [corpus.content for corpus in group(paths, content="labels")] == ["labels", "labels"]


def poisoned(folder: Path) -> list[str]:
    (folder / "a.en").write_bytes(b"A dog.\nA caf\xe9.\n[red]A\x1b[31m cat.[/red]\n" + b"x\n" * 4)
    (folder / "a.de").write_bytes(b"Ein Hund.\nEin Caf\xc3\xa9.\nEine Katze.\n" + b"y\n" * 4)
    return [str(folder / "a.en"), str(folder / "a.de")]


def test_the_table_names_file_line_and_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *poisoned(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "a.en + a.de  7 pairs" in out
    assert "line 2  byte 12  invalid UTF-8 byte 0xE9 in “A caf\\xe9.”. Probably Latin-1" in out
    assert "U+001B in “[red]A\\x1b[31m cat.[/red]”" in out  # neither markup nor escape codes reach the terminal
    assert "\x1b" not in out
    assert "pairs seen before" in out and "42.86 %" in out
    assert "cannot be used" in out


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *poisoned(tmp_path), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["version"], values["usable"]) == (1, False)
    (corpus,) = values["corpora"]
    assert (corpus["examples"], corpus["suspicious"], corpus["content"]) == (7, 5, "pairs")
    findings = {finding["kind"]: finding for finding in corpus["findings"]}
    assert {kind: finding["count"] for kind, finding in findings.items()} == {
        "encoding": 1,
        "control": 1,
        "duplicate": 3,
    }
    assert [findings[kind]["severity"] for kind in findings] == ["fatal", "warning", "warning"]
    assert findings["duplicate"]["examples"][2] == {
        "file": str(tmp_path / "a.en"),
        "line": 7,
        "byte": (tmp_path / "a.en").stat().st_size - len(b"x\n"),
        "value": "“x” / “y”",
    }


def test_warnings_do_not_change_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, "a.en", "a.de")  # copies
    assert run(["check", *map(str, paths)]) == 0
    assert "source = target" in capsys.readouterr().out


def test_one_unusable_corpus_decides_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "good.tsv", text="one\teins\n")
    write(tmp_path, "bad.tsv", text="one\n")
    assert run(["check", str(tmp_path / "good.tsv"), str(tmp_path / "bad.tsv")]) == 1
    assert run(["check", str(tmp_path / "good.tsv")]) == 0
    capsys.readouterr()


def test_test_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "train.tsv", text="one\teins\ntwo\tzwei\nthree\tdrei\n")
    write(tmp_path, "t1.en", text="two\n")
    write(tmp_path, "t2.tsv", text="three\tDREI\n")
    files = [str(tmp_path / name) for name in ("train.tsv", "t1.en", "t2.tsv")]
    assert run(["check", files[0], "--test", *files[1:], "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["corpora"][0]["findings"]
    assert (finding["kind"], finding["count"]) == ("overlap", 2)
    assert [example["value"] for example in finding["examples"]] == [f"{files[1]}:1: “two”", f"{files[2]}:1: “three”"]


@pytest.mark.parametrize(
    ("content", "line"), [("labels", '{"text": "two", "label": "x"}'), ("text", '{"text": "two"}')]
)
def test_a_test_set_is_read_like_the_checked_files(
    content: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train.jsonl", "test.jsonl"):
        write(tmp_path, name, text=f"{line}\n")
    files = [str(tmp_path / "train.jsonl"), "--test", str(tmp_path / "test.jsonl")]
    assert run(["check", *files, "--content", content, "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["corpora"][0]["findings"]
    assert (finding["kind"], finding["count"]) == ("overlap", 1)


def test_columns_say_which_side_is_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "train.tsv", text="one\teins\ntwo\tzwei\n")
    write(tmp_path, "test.de", text="zwei\n")
    arguments = ["check", str(tmp_path / "train.tsv"), "--test", str(tmp_path / "test.de"), "--json"]
    for columns, n in (("1,2", 0), ("2,1", 1)):
        assert run([*arguments, "--columns", columns]) == 0
        assert len(json.loads(capsys.readouterr().out)["corpora"][0]["findings"]) == n


def test_fix_reports_what_was_dropped_and_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *poisoned(tmp_path), "--fix", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "3 pairs kept" in out
    assert "3 × pairs seen before, 1 × invalid UTF-8" in out
    assert run(["check", str(tmp_path / "out" / "a.en"), str(tmp_path / "out" / "a.de"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["corpora"][0]["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "no files to check"),
        (["check", "nowhere.tsv"], "nowhere.tsv: no such file"),
        (["check", "a.tmx", "--languages", "en"], "--languages en: expected the source and the target"),
        (["check", "a.tmx", "--languages", "en,en"], "--languages en,en"),
        (["check", "a.tsv", "--columns", "1"], "--columns 1: expected two different columns"),
        (["check", "a.tsv", "--columns", "0,1"], "--columns 0,1"),
        (["check", "a.tsv", "--columns", "1,x"], "--columns 1,x"),
    ],
)
def test_mistakes(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 1
    out, err = capsys.readouterr()
    assert words in err and "Traceback" not in err and not out


def test_progress_without_a_terminal_is_one_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.ProgressReporter(unit="pairs") as passing:
        for done in range(8):
            passing.update("a.en", done * 1000, done / 10)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "a.en: 3,000 pairs, 100 a second, 30%, 1 m 10 s left\na.en: 6,000 pairs, 100 a second, 60%, 40 s left\n"
    )


def test_a_check_needs_no_torch(tmp_path: Path) -> None:
    paths = write(tmp_path, "a.en", "a.de")
    program = f"""
import sys
from heedful.cli.main import run
assert run(["check", *{[str(path) for path in paths]!r}]) == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
