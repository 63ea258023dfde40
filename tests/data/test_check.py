"""`heedful check`: exact counts, exact positions, and memory that does not grow with the corpus."""

import random
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import check, open_corpus, read_labelled, read_text
from heedful.data.check import DuplicateDetector, Report, check_corpus, read_test_sources
from heedful.data.problems import KINDS
from heedful.data.unicode_scripts import ScriptOf, fits, main_script

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
ENGLISH = ["the", "a", "dog", "cat", "man", "woman", "house", "street", "with", "on", "runs", "sits", "and", "red"]
GERMAN = ["der", "ein", "Hund", "Katze", "Mann", "Frau", "Haus", "Straße", "mit", "auf", "läuft", "sitzt", "und", "rot"]


def made_up(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Make distinct pairs, translated word by word."""
    draw = random.Random(seed)
    pairs = []
    for i in range(n):
        words = draw.choices(range(len(ENGLISH)), k=draw.randrange(6, 14))
        source, target = (" ".join(language[word] for word in words) for language in (ENGLISH, GERMAN))
        pairs.append((f"{source} {i}.", f"{target} {i}."))
    return pairs


def checked(folder: Path, pairs: list[tuple[str, str]], *, tests: list[Path] | None = None) -> Report:
    for name, side in (("a.en", 0), ("a.de", 1)):
        (folder / name).write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    sources = read_test_sources(read_text(path) for path in tests or ())
    return check_corpus(open_corpus([folder / "a.en", folder / "a.de"]), test_sources=sources)


def counts(report: Report) -> dict[str, int]:
    return {finding.kind: finding.count for finding in report.in_order()}


def test_a_clean_corpus_has_no_finding(tmp_path: Path) -> None:
    report = checked(tmp_path, made_up(500))
    assert (counts(report), report.n_examples, report.n_suspicious, report.usable) == ({}, 500, 0, True)


@given(st.lists(st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1), max_size=20), max_size=20))
def test_the_duplicate_detector_is_a_set(chunks: list[list[int]]) -> None:
    detector, known = DuplicateDetector(), set[int]()
    for chunk in chunks:
        expected = []
        for value in chunk:
            expected.append(value in known)
            known.add(value)
        assert detector.is_repeated(np.array(chunk, dtype=np.int64)).tolist() == expected
    assert detector.n_different == len(known)


def test_the_duplicate_detector_keeps_few_arrays() -> None:
    detector = DuplicateDetector()
    for i in range(1000):
        detector.is_repeated(np.arange(i * 10, i * 10 + 10))
    assert len(detector._runs) <= 10  # each query searches all of them
    assert detector.n_different == 10_000


def test_duplicates_are_found_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SAMPLE", 100)
    monkeypatch.setattr(check, "CHUNK", 10)
    pairs = made_up(300)
    pairs += [pairs[0], pairs[299], pairs[0], (pairs[0][0], pairs[1][1])]
    report = checked(tmp_path, pairs)
    assert counts(report) == {"duplicate": 3}
    (finding,) = report.in_order()
    assert [place.line for place, _ in finding.examples] == [301, 302, 303]
    content = (tmp_path / "a.en").read_bytes()
    for place, _ in finding.examples:
        assert place.byte is not None and place.line is not None
        assert content[place.byte :].startswith(pairs[place.line - 1][0].encode())


def test_overlap_is_exact_except_for_spaces(tmp_path: Path) -> None:
    pairs = made_up(100)
    pairs[7] = (pairs[7][0].replace(" ", "\u3000 ", 1), pairs[7][1])
    test = tmp_path / "test.en"
    spaced = pairs[7][0].replace("\u3000", "  ")
    test.write_text(f"{pairs[3][0]}\n\n  {spaced}\n{pairs[9][0][:-2]}\n")
    report = checked(tmp_path, pairs, tests=[test])
    assert counts(report) == {"overlap": 2}
    assert [place.line for place, _ in report.in_order()[0].examples] == [4, 8]
    assert f"{test}:3" in report.in_order()[0].examples[1][1]


def test_swapped_pairs_are_found_by_the_words_of_the_corpus_itself(tmp_path: Path) -> None:
    pairs = made_up(2000)
    swapped = random.Random(1).sample(range(2000), 50)
    for i in swapped:
        pairs[i] = pairs[i][::-1]
    report = checked(tmp_path, pairs)
    assert set(counts(report)) == {"swapped"}
    assert report.count("swapped") >= 48


def test_sides_in_one_language_are_not_compared_by_words(tmp_path: Path) -> None:
    """Two styles of one language: words that only some targets have may also be in a source."""
    draw = random.Random(2)
    pairs = [(" ".join(draw.choices(ENGLISH, k=12)), " ".join(draw.choices(ENGLISH, k=10))) for _ in range(500)]
    style = "thus hence whereby therein thereof hereby"
    pairs[::5] = [(source, f"{style} {target}") for source, target in pairs[::5]]
    pairs[7] = (f"{style} {pairs[7][0]}", pairs[7][1])
    assert {"swapped", "language"}.isdisjoint(counts(checked(tmp_path, pairs)))


def test_a_bad_character_is_reported_with_its_byte(tmp_path: Path) -> None:
    pairs = made_up(10)
    pairs[4] = ("vorläufig\u2028\0", "ü\x1b")
    report = checked(tmp_path, pairs)
    for kind, name, character in (("separator", "a.en", "\u2028"), ("nul", "a.en", "\0"), ("control", "a.de", "\x1b")):
        place, value = report.findings[kind, str(tmp_path / name)].examples[0]
        assert (tmp_path / name).read_bytes().index(character.encode()) == place.byte
        assert f"U+{ord(character):04X}" in value


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("A dog runs.", "Latin"),
        ("Ελληνικά κείμενα", "Greek"),
        ("Собака бежит", "Cyrillic"),
        ("كلب يجري في الشارع", "Arabic"),
        ("הכלב רץ ברחוב", "Hebrew"),
        ("कुत्ता दौड़ता है", "Devanagari"),
        ("一只狗在街上跑", "Han"),
        ("犬が走っている", "Kana"),
        ("ＡＢＣ ﾃｷｽﾄ ﾃﾞｽ", "Kana"),
        ("개가 달리고 있다", "Hangul"),
        ("สุนัขวิ่งไปตามถนน", "Thai"),
        ("我用Twitter。", ""),
        ("1998 – 2004, μm", ""),
        ("OK", ""),
    ],
)
def test_scripts(text: str, script: str) -> None:
    assert main_script(text, ScriptOf()) == script


def test_kanji_alone_fit_a_japanese_file_and_kana_do_not_fit_a_chinese_file() -> None:
    assert fits("東京都庁舎", "Kana", ScriptOf())
    assert not fits("犬が走っている", "Han", ScriptOf())
    assert fits("Größe naïve œuvre", "Latin", ScriptOf())
    assert not fits("Собака бежит", "Latin", ScriptOf())


def test_repeated_lines_of_running_text_are_notes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ROMEO:\nO!\n\nROMEO:\nO!\n" + "long " * 1000 + "\n")
    report = check_corpus(read_text(path))
    assert counts(report) == {"blank": 1, "repeat": 2}
    assert report.n_suspicious == 0


def test_a_label_is_not_compared_with_its_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"film {i}" + " and so on" * (i % 50) + "\tgood\n" for i in range(99)))
    assert counts(check_corpus(read_labelled(path))) == {}
    assert set(counts(check_corpus(open_corpus(path)))) == {"ratio"}  # read as pairs, the file looks wrong


def test_an_example_with_several_problems_counts_once_as_suspicious(tmp_path: Path) -> None:
    pairs = made_up(100)
    pairs[5] = ("a \0 b \u2028 c \x1b", "x \ufffd \0")
    report = checked(tmp_path, pairs)
    assert report.n_suspicious == 1
    assert counts(report) == {"nul": 1, "separator": 1, "control": 1, "replacement": 1} and report.count("nul") == 2


def test_memory_grows_only_by_the_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SAMPLE", 1000)
    monkeypatch.setattr(check, "CHUNK", 500)
    peaks = []
    for n in (2_000, 22_000):
        pairs = made_up(n)
        for name, side in (("a.en", 0), ("a.de", 1)):
            (tmp_path / name).write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
        del pairs
        corpus = open_corpus([tmp_path / "a.en", tmp_path / "a.de"])
        tracemalloc.start()
        check_corpus(corpus)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 20_000 * 8 * 3  # two arrays and the merged one


def test_chunks_of_long_lines_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CHUNK_CHARACTERS", 1000)
    (tmp_path / "a.txt").write_text(("x" * 400 + "\n") * 10)
    sizes = [len(judged) for judged in check.CorpusChecker(read_text(tmp_path / "a.txt"))]
    assert sizes == [3, 3, 3, 1]


def test_every_kind_is_documented() -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (fatal|warning|note) \|", page, re.MULTILINE))
    assert rows == {name: kind.severity for name, kind in KINDS.items()}


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the corpora in ../shared/data")
def test_published_corpora_are_hardly_suspicious() -> None:
    """Few false alarms: in published, clean corpora almost nothing is suspicious."""
    raw = SHARED / "multi30k" / "raw"
    multi30k = check_corpus(open_corpus([raw / "train.en.gz", raw / "train.de.gz"]))
    assert counts(multi30k) == {"duplicate": 3, "ratio": 2}  # the targets of the two are "@@"
    chinese = check_corpus(open_corpus(SHARED / "tatoeba" / "eng-cmn.train.tsv.xz"))
    japanese = check_corpus(open_corpus([SHARED / "enja" / "dev.en.xz", SHARED / "enja" / "dev.ja.xz"]))
    assert multi30k.suspicious_share < 0.001 and chinese.suspicious_share < 0.001 and japanese.suspicious_share < 0.003
