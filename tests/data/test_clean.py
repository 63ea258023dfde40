"""`--fix`: a new folder, complete or absent; other columns and keys, and the compression, are kept."""

import errno
import gzip
import json
from pathlib import Path

import pytest

from heedful.data import Corpus, Example, open_corpus, read_labelled, read_text
from heedful.data.clean import TableWriter, clean_names, write_clean
from heedful.errors import UserError


def log_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "dropped.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def fixed(corpus: Corpus, folder: Path) -> list[Example]:
    write_clean([corpus], folder / "out")
    paths = [folder / "out" / name for name in clean_names(corpus)]
    return list(open_corpus(paths, languages=corpus.languages))


def test_text_files_keep_their_compression(tmp_path: Path) -> None:
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfone\r\n\r\nnul \0here\r\nfour"))
    (tmp_path / "a.de").write_bytes(b"eins\nzwei\nnull\n\xff\n")
    corpus = open_corpus([tmp_path / "a.en.gz", tmp_path / "a.de"])
    assert fixed(corpus, tmp_path) == [Example("one", "eins"), Example("nul here", "null")]
    assert gzip.decompress((tmp_path / "out" / "a.en.gz").read_bytes()) == b"one\nnul here\n"
    assert [(row["action"], row["kind"], row["line"]) for row in log_of(tmp_path / "out")] == [
        ("dropped", "empty", 2),
        ("changed", "nul", 3),
        ("dropped", "encoding", 4),
    ]
    assert log_of(tmp_path / "out")[0]["texts"] == ["", "zwei"]


def test_tsv_keeps_its_other_columns(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"one\teins\tCC-BY 1\nt\x0bwo\tzwei\tCC-BY 2\nsame\tsame\tCC-BY 3\n")
    assert fixed(open_corpus(tmp_path / "a.tsv"), tmp_path) == [Example("one", "eins"), Example("t wo", "zwei")]
    assert (tmp_path / "out" / "a.tsv").read_bytes() == b"one\teins\tCC-BY 1\nt wo\tzwei\tCC-BY 2\n"


def test_tsv_columns_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"x\teins\to\x0bne\n")
    write_clean([open_corpus(tmp_path / "a.tsv", columns=(3, 2))], tmp_path / "out")
    assert (tmp_path / "out" / "a.tsv").read_bytes() == b"x\teins\to ne\n"
    assert log_of(tmp_path / "out")[0]["byte"] == 8


def test_jsonl_keeps_its_other_keys(tmp_path: Path) -> None:
    lines = [
        '{"id": 1,  "translation": {"en": "one", "de": "eins"}}',
        '{"id": 2, "translation": {"en": "t\\u0000wo", "de": "ü"}}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "", "{broken", ""]))
    corpus = open_corpus(tmp_path / "a.jsonl", languages=("en", "de"))
    assert fixed(corpus, tmp_path) == [Example("one", "eins"), Example("two", "ü")]
    first, second, *rest = (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8").split("\n")
    assert (first, json.loads(second), rest) == (lines[0], {"id": 2, "translation": {"en": "two", "de": "ü"}}, [""])


@pytest.mark.parametrize("first", ["A dog runs.", "", "Ein Hund rennt."], ids=["kept", "empty", "copied"])
def test_each_text_is_written_to_the_key_that_it_was_read_from(first: str, tmp_path: Path) -> None:
    """The first object decides which language is the source, even if it is dropped or later ones differ in order."""
    pairs = [
        {"en": first, "de": "Ein Hund rennt."},
        {"de": "Die Katze schläft.", "en": "The cat\x07 sleeps."},
        {"fr": "le matin", "de": "der\x07 Morgen", "en": "the morning"},
    ]
    lines = [json.dumps({"translation": pair}) for pair in pairs]
    (tmp_path / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    write_clean([open_corpus(tmp_path / "a.jsonl")], tmp_path / "out")
    written = (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    clean = [json.loads(line.replace("\\u0007", " ")) for line in lines]
    assert [json.loads(line) for line in written] == (clean if first == "A dog runs." else clean[1:])


def test_unchanged_values_keep_their_type_in_jsonl(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good film", "label": 1}\n{"text": "bad\\u0007 film", "label": 0}\n')
    write_clean([read_labelled(tmp_path / "a.jsonl")], tmp_path / "out")
    written = (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line)["label"] for line in written] == [1, 0]


def test_tmx_becomes_jsonl_with_its_languages(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="fr"><seg>{}</seg></tuv></tu>'
    units = [unit.format("A &lt; B\u2028", "A &amp; B"), unit.format("x", ""), unit.format("b", "c")]
    (tmp_path / "a.tmx").write_text(f"<tmx><body>{''.join(units)}</body></tmx>", encoding="utf-8")
    assert fixed(open_corpus(tmp_path / "a.tmx"), tmp_path) == [Example("A < B ", "A & B"), Example("b", "c")]
    first, _, *rest = (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8").split("\n")
    assert json.loads(first) == {"translation": {"en": "A < B ", "fr": "A & B"}} and rest == [""]


def test_the_copy_of_a_compressed_tmx_is_compressed(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="fr"><seg>b</seg></tuv></tu>'
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(f"<tmx><body>{unit}</body></tmx>".encode()))
    assert fixed(open_corpus(tmp_path / "a.tmx.gz"), tmp_path) == [Example("a", "b")]
    assert (tmp_path / "out" / "a.jsonl.gz").is_file()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"source": "a", "target": "b"}\n'))
    with pytest.raises(UserError, match=r"more than one file would be called a\.jsonl\.gz"):
        write_clean([open_corpus(tmp_path / name) for name in ("a.tmx.gz", "a.jsonl.gz")], tmp_path / "other")


@pytest.mark.parametrize("nested", [True, False])
def test_parquet_becomes_jsonl_with_its_columns_as_keys(nested: bool, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    sources, targets = ["one", "nul\0", "", "same"], ["eins", "null", "leer", "same"]
    pairs = [{"en": source, "de": target} for source, target in zip(sources, targets, strict=True)]
    table = arrow.table({"translation": pairs} if nested else {"en": sources, "de": targets})
    parquet.write_table(table, tmp_path / "a.parquet")
    corpus = open_corpus(tmp_path / "a.parquet", languages=("en", "de"))
    assert fixed(corpus, tmp_path) == [Example("one", "eins"), Example("nul", "null")]
    rows = [json.loads(line) for line in (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    pair = {"en": "one", "de": "eins"}
    assert rows[0] == ({"translation": pair} if nested else pair)


def test_labels_of_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": ["good", "good", "bad"], "label": [1, 1, 0]}), tmp_path / "a.parquet")
    write_clean([read_labelled(tmp_path / "a.parquet")], tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == [{"text": "good", "label": "1"}, {"text": "bad", "label": "0"}]


def test_running_text_loses_only_unusable_lines_and_test_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ROMEO:\n\nROMEO:\nsecret line\n\xff\xfe\xfd\nvt\x0b\n")
    write_clean([read_text(tmp_path / "a.txt")], tmp_path / "out", test_sources={"secret line": "test.txt:1"})
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"ROMEO:\n\nROMEO:\nvt \n"


def test_a_text_of_nothing_but_control_characters_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"\0\0\tx\none\teins\n")
    assert fixed(open_corpus(tmp_path / "a.tsv"), tmp_path) == [Example("one", "eins")]
    assert log_of(tmp_path / "out")[0]["kind"] == "empty"


def test_an_existing_folder_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(UserError, match="exists and is not empty"):
        write_clean([open_corpus(tmp_path / "a.tsv")], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["precious"]
    (tmp_path / "out" / "precious").unlink()
    assert fixed(open_corpus(tmp_path / "a.tsv"), tmp_path) == [Example("one", "eins")]


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.tsv").write_text("one\teins\n")
    with pytest.raises(UserError, match=r"more than one file would be called a\.tsv"):
        write_clean([open_corpus(tmp_path / name / "a.tsv") for name in "xy"], tmp_path / "out")


def test_a_corpus_of_which_nothing_is_left_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "good.tsv").write_text("one\teins\n")
    (tmp_path / "copies.tsv").write_text("one\tone\n")
    with pytest.raises(UserError, match=r"copies\.tsv: nothing would be left \(1 × source = target\)"):
        write_clean([open_corpus(tmp_path / "good.tsv"), open_corpus(tmp_path / "copies.tsv")], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copies.tsv", "good.tsv"]


def test_a_full_disk_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TableWriter, "write", full)
    with pytest.raises(UserError, match=r"--fix .*out: cannot be written: No space left on device"):
        write_clean([open_corpus(tmp_path / "a.tsv")], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]
