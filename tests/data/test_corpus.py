"""Readers: every format yields the same examples, and errors say what cannot be read."""

import builtins
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import Corpus, Example, open_corpus, read_labelled, read_text
from heedful.data.formats import first_shifted_line
from heedful.data.problems import Problem, excerpt
from heedful.errors import MissingExtra, UserError

SHARED = Path(__file__).parents[2].parent / "shared"
PAIRS = [
    ("A dog runs.", "Ein Hund läuft."),
    ('He error "yes" & <no>.', "Er sagte „ja“ & <nein>."),
    ("A line\u2028with a separator", "犬が走る。"),
    ("  spaces kept ", "\u00a0ditto"),
    ("'\"unbalanced", '"""'),
]


def write_pairs(folder: Path, pairs: Sequence[tuple[str, str]], form: str) -> list[Path]:
    """Write the pairs as files of one format."""
    if form == "text":
        paths = [folder / "a.en", folder / "a.de.gz"]
        paths[0].write_bytes("".join(f"{source}\n" for source, _ in pairs).encode())
        paths[1].write_bytes(gzip.compress("".join(f"{target}\n" for _, target in pairs).encode()))
        return paths
    path = (
        folder
        / {"tsv": "a.tsv", "nested": "a.jsonl", "flat": "b.jsonl.gz", "tmx": "a.tmx", "parquet": "a.parquet"}[form]
    )
    if form == "tsv":
        path.write_bytes("".join(f"{source}\t{target}\tnote\n" for source, target in pairs).encode())
    elif form == "nested":
        rows = [{"id": i, "translation": {"en": s, "de": t, "fr": "x"}} for i, (s, t) in enumerate(pairs)]
        path.write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode())
    elif form == "flat":
        rows = [{"source": source, "target": target} for source, target in pairs]
        path.write_bytes(gzip.compress("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()))
    elif form == "tmx":
        units = [
            f'<tu><tuv xml:lang="DE"><seg>{escape(t)}</seg></tuv>'
            f'<tuv xml:lang="en-GB"><seg>{escape(s)}</seg></tuv></tu>'
            for s, t in pairs
        ]
        path.write_bytes(f'<?xml version="1.0"?><tmx><body>{"".join(units)}</body></tmx>'.encode())
    elif form == "parquet":
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"translation": [{"en": s, "de": t} for s, t in pairs], "id": list(range(len(pairs)))})
        arrow.parquet.write_table(table, path, row_group_size=2)
    return [path]


@pytest.mark.parametrize("form", ["text", "tsv", "nested", "flat", "tmx", "parquet"])
def test_every_format_yields_the_same_examples(form: str, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet")
    corpus = open_corpus(write_pairs(tmp_path, PAIRS, form), languages=("en", "de"))
    expected = [Example(source, target) for source, target in PAIRS]
    assert list(corpus) == expected
    assert list(corpus) == expected  # a corpus can be iterated over again
    if form not in ("tmx",):
        assert [example.line for example in corpus] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("form", ["nested", "tmx"])
def test_languages_select_the_sides(form: str, tmp_path: Path) -> None:
    paths = write_pairs(tmp_path, PAIRS, form)
    assert [example.source for example in open_corpus(paths, languages=("de", "en"))] == [target for _, target in PAIRS]


def test_without_languages_the_first_record_decides(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"translation": {"de": "ja", "en": "yes"}}\n{"translation": {"en": "no", "de": "nein"}}\n'
    )
    assert list(open_corpus(tmp_path / "a.jsonl")) == [Example("ja", "yes"), Example("nein", "no")]
    tmx = write_pairs(tmp_path, PAIRS, "tmx")
    assert next(iter(open_corpus(tmx))) == Example(PAIRS[0][1], PAIRS[0][0])


def test_of_three_languages_two_must_be_chosen(tmp_path: Path) -> None:
    paths = write_pairs(tmp_path, PAIRS, "nested")
    with pytest.raises(
        UserError, match=r"a\.jsonl: line 1 .*choose two of its languages .*data.languages.*: en, de, fr"
    ):
        list(open_corpus(paths))


@pytest.mark.parametrize("form", ["nested", "tmx", "parquet"])
def test_a_missing_language_is_refused(form: str, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet")
    with pytest.raises(UserError, match=r"'it'.*en.*de|'it'.*DE, en-GB"):
        list(open_corpus(write_pairs(tmp_path, PAIRS, form), languages=("en", "it")))


def test_columns_select_the_sides(tmp_path: Path) -> None:
    (path,) = write_pairs(tmp_path, PAIRS, "tsv")
    assert list(open_corpus(path, columns=(2, 1))) == [Example(target, source) for source, target in PAIRS]
    assert list(open_corpus(path, columns=(3, 1))) == [Example("note", source) for source, _ in PAIRS]
    assert list(read_labelled(path, columns=(1, 3))) == [Example(source, "note") for source, _ in PAIRS]
    with pytest.raises(UserError, match=r"a\.tsv: line 1 .*3 columns, 4 are needed"):
        list(open_corpus(path, columns=(4, 1)))
    with pytest.raises(UserError, match=r"columns \(0, 1\)"):
        open_corpus(path, columns=(0, 1))


def test_tmx_inline_codes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(
        '<tmx><body><tu><tuv xml:lang="en"><seg>A <bpt i="1">&lt;b&gt;</bpt><hi>big</hi><ept i="1">&lt;/b&gt;</ept> '
        "dog<ph>{1}<sub>no</sub></ph>.</seg></tuv>"
        '<tuv lang="de"><prop>x</prop><seg>Ein\nHund.</seg></tuv></tu></body></tmx>'
    )
    assert list(open_corpus(tmp_path / "a.tmx")) == [Example("A big dog.", "Ein\nHund.")]


def test_tmx_may_be_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_bytes(
        '<?xml version="1.0" encoding="UTF-16"?><tmx><body><tu><tuv xml:lang="en"><seg>Yes</seg></tuv>'
        '<tuv xml:lang="el"><seg>Ναι</seg></tuv></tu></body></tmx>'.encode("utf-16")
    )
    assert list(open_corpus(tmp_path / "a.tmx")) == [Example("Yes", "Ναι")]


def test_tmx_units_and_tags_have_a_maximum_size(tmp_path: Path) -> None:
    (tmp_path / "segment.tmx").write_text(f'<tmx><tu><tuv xml:lang="en"><seg>{"x" * 300_000}')
    (tmp_path / "tag.tmx").write_text(f'<tmx a="{"x" * 300_000}')
    for name in ("segment.tmx", "tag.tmx"):
        with pytest.raises(UserError, match=rf"{name}: line 1 .*more than 100,000"):
            list(open_corpus(tmp_path / name, max_line_bytes=100_000))


def test_text_for_language_models(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\ntwo\tmore\n \n")
    corpus = read_text(path)
    assert list(corpus) == [Example("one"), Example("two\tmore")]
    assert corpus.skipped == {"blank": 2}
    assert [example.line for example in corpus] == [1, 3]
    assert corpus.skipped == {"blank": 2}  # of the last iteration, not of both
    assert [example.source for example in read_text(path, keep_empty=True)] == ["one", "", "two\tmore", " "]
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two\\nlines"}\n')
    assert list(read_text(tmp_path / "a.jsonl")) == [Example("one"), Example("two\nlines")]


def test_labelled_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good film\tpositive\nbad film\tnegative\n")
    (tmp_path / "a.jsonl").write_text('{"text": "good film", "label": "positive"}\n{"text": "bad film", "label": 0}\n')
    assert list(read_labelled(tmp_path / "a.txt")) == [
        Example("good film", "positive"),
        Example("bad film", "negative"),
    ]
    assert list(read_labelled(tmp_path / "a.jsonl")) == [Example("good film", "positive"), Example("bad film", "0")]
    (tmp_path / "b.txt").write_text("no label\n")
    with pytest.raises(UserError, match=r"b\.txt: line 1"):
        list(read_labelled(tmp_path / "b.txt"))


def test_parquet_for_text_and_labels(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["a", None, "c"], "label": [0, 1, 2]}), path)
    assert list(read_labelled(path)) == [Example("a", "0"), Example("c", "2")]
    assert list(read_text(path)) == [Example("a"), Example("c")]
    with pytest.raises(UserError, match=r"'source' and 'target'.*has only: text, label"):
        list(open_corpus(path))


def test_the_error_names_a_parquet_column_without_texts_and_its_row(tmp_path: Path) -> None:
    """The file is not damaged, so the error must not advise to download it again."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a dog", "a cat"], "label": [0.5, 1.5]}), path)
    for policy in ("error", "skip"):
        with pytest.raises(
            UserError, match=r"a\.parquet: row 1: 'label' is not a text but float\. Each row needs"
        ) as error:
            list(read_labelled(path, on_bad_line=policy))  # type: ignore[arg-type]
        assert "download" not in str(error.value)


def test_compressed_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(UserError, match=r"a\.parquet\.gz: Parquet files are compressed already"):
        list(open_corpus(tmp_path / "a.parquet.gz"))


def test_parquet_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_arrow(name: str, *rest: object, **more: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", without_arrow)
    with pytest.raises(MissingExtra, match=r"pip install 'heedful\[parquet\]'"):
        list(open_corpus(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a.txt"], "one plain text file has only one side"),
        (["a.tsv", "a.txt"], "a.tsv: two files must be the two sides in plain text"),
        (["a.txt", "b.txt", "c.txt"], "3 files given"),
        (["a.csv"], "CSV is not read"),
    ],
)
def test_files_that_are_not_pairs_are_refused(names: list[str], words: str, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_text("x\n")
    with pytest.raises(UserError) as refusal:
        open_corpus(paths)
    assert words in str(refusal.value)


def test_an_unknown_value_of_on_bad_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"on_bad_line: unknown value 'ignore'"):
        open_corpus(write_pairs(tmp_path, PAIRS, "text"), on_bad_line="ignore")  # type: ignore[arg-type]


def test_a_corpus_without_a_usable_example_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\tx\n \ty\n")
    with pytest.raises(UserError, match=r"a\.tsv: no usable example \(2 empty side\)"):
        list(open_corpus(tmp_path / "a.tsv"))


def test_the_fingerprint_depends_on_the_bytes_and_the_options(tmp_path: Path) -> None:
    paths = write_pairs(tmp_path, PAIRS, "text")
    corpora: list[Corpus] = [
        open_corpus(paths),
        open_corpus(paths[::-1]),
        open_corpus(write_pairs(tmp_path, PAIRS, "nested"), languages=("en", "de")),
        open_corpus(tmp_path / "a.jsonl", languages=("de", "en")),
    ]
    prints = [corpus.fingerprint() for corpus in corpora]
    assert len(set(prints)) == 4
    assert prints == [corpus.fingerprint() for corpus in corpora]
    paths[0].write_bytes(paths[0].read_bytes().replace(b"dog", b"Dog"))
    assert open_corpus(paths).fingerprint() != prints[0]


def test_numbers_of_lines_are_compared_before_the_first_pair(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n")
    (tmp_path / "a.de").write_text("eins\ndrei\n")
    with pytest.raises(UserError, match=r"a\.en: 3 lines, but .*a\.de has 2"):
        next(iter(open_corpus([tmp_path / "a.en", tmp_path / "a.de"])))


@given(st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_the_first_shifted_line_is_found(
    tmp_path_factory: pytest.TempPathFactory, seed: int, k: int, swap: bool
) -> None:
    draw = random.Random(seed)
    lengths = [draw.randrange(5, 150) for _ in range(400)]
    sides = [["x" * round(n * factor * draw.uniform(0.9, 1.1)) for n in lengths] for factor in (1.0, 1.2)]
    at = draw.randrange(100, 300)
    del sides[swap][at : at + k]
    folder = tmp_path_factory.mktemp("shift")
    for name, lines in zip("ab", sides, strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    line = first_shifted_line(folder / "a", folder / "b")
    assert line is not None
    assert abs(line - (at + 1)) <= 3


def test_no_shifted_line_is_guessed_without_evidence(tmp_path: Path) -> None:
    draw = random.Random(5)
    for name, n in (("a", 400), ("b", 401)):
        (tmp_path / name).write_text("".join("x" * draw.randrange(100) + "\n" for _ in range(n)))
    assert first_shifted_line(tmp_path / "a", tmp_path / "b") is None


def test_an_excerpt_is_one_line_without_control_characters() -> None:
    assert excerpt("a\x1b[31m\u202e\n\U000e0001") == "a\\x1b[31m\\u202e\\x0a\\U000e0001"
    assert excerpt("x" * 100) == "x" * 59 + "…"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the corpora in ../shared/data")
def test_real_corpora_have_the_published_counts() -> None:
    data = SHARED / "data"
    raw = data / "multi30k" / "raw"
    for split, n in (("train", 29_000), ("val", 1_014), ("test_2016_flickr", 1_000)):
        assert sum(1 for _ in open_corpus([raw / f"{split}.en.gz", raw / f"{split}.de.gz"])) == n
    assert sum(1 for _ in open_corpus(data / "tatoeba" / "eng-cmn.train.tsv.xz")) == 28_417
    assert sum(1 for _ in open_corpus([data / "enja" / "dev.en.xz", data / "enja" / "dev.ja.xz"])) == 500


def test_the_error_of_a_line_without_a_label_speaks_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("a dog\tgood\na cat\n")
    with pytest.raises(UserError, match=r"line 2 \(byte 11\): 1 column, 2 are needed.*Each line needs text TAB label"):
        list(read_labelled(path))


@pytest.mark.parametrize("begin", ["", "\n", "a heading\n", "\n \nshort\n"])
def test_the_first_complete_line_sets_the_number_of_columns(begin: str, tmp_path: Path) -> None:
    """A blank or short first line must not make all other lines too wide."""
    path = tmp_path / "a.tsv"
    path.write_text(f"{begin}a dog\tein Hund\tnote\na cat\teine Katze\tnote\na\tman\tein Mann\tnote\n")
    records = list(open_corpus(path).records())[begin.count("\n") :]
    problems = [[problem for part in record.fields for problem in part.problems] for record in records]
    first = begin.count("\n") + 1
    assert problems == [[], [], [Problem("extra-columns", f"4 columns, line {first} has 3")]]
