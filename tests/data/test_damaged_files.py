"""Files that break other toolkits, each with its documented outcome: no pair is shifted, nothing ends in a traceback.

Every pair has its number on both sides, so that any shift is noticed.
"""

import bz2
import gzip
import json
import lzma
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heedful.cli.main import run
from heedful.data import Corpus, open_corpus
from heedful.errors import UserError

N = 60  # enough pairs for a usual ratio and usual words
Sides = tuple[list[bytes], list[bytes]]


def good() -> Sides:
    sources = [f"A dog with the number {i} runs to the house and the garden." for i in range(N)]
    targets = [f"Ein Hund mit der Nummer {i} läuft zu dem Haus und dem Garten." for i in range(N)]
    return [line.encode() for line in sources], [line.encode() for line in targets]


@dataclass(frozen=True)
class Damage:
    """A kind of damage, the problems that `heedful check` finds (kind -> count), and what the reader does."""

    name: str
    make: Callable[[Path], list[Path]]
    finds: dict[str, int] = field(default_factory=dict)
    reads: int = N
    refuses: tuple[str, ...] = ()  # words of the reader's error
    with_skip: int | None = None  # number of pairs with on_bad_line="skip"
    fatal: bool = False
    says: tuple[str, ...] = ()  # words of the error of `heedful check`, if it cannot begin


def write(folder: Path, sides: Sides, *, end: bytes = b"\n") -> list[Path]:
    paths = [folder / "a.en", folder / "a.de"]
    for path, lines in zip(paths, sides, strict=True):
        path.write_bytes(b"".join(line + end for line in lines))
    return paths


def line(source: bytes | None = None, target: bytes | None = None, *, at: int = 30) -> Callable[[Path], list[Path]]:
    """Replace line 31 on one side or both; `{}` stands for the original text."""

    def make(folder: Path) -> list[Path]:
        sides = good()
        for lines, planted in zip(sides, (source, target), strict=True):
            if planted is not None:
                lines[at] = planted.replace(b"{}", lines[at])
        return write(folder, sides)

    return make


def whole(change: Callable[[bytes], bytes], *, name: str = "a.en") -> Callable[[Path], list[Path]]:
    """Change all bytes of the source file, and optionally its name."""

    def make(folder: Path) -> list[Path]:
        source, target = write(folder, good())
        content = change(source.read_bytes())
        source.unlink()
        (folder / name).write_bytes(content)
        return [folder / name, target]

    return make


def one(name: str, content: Callable[[list[str], list[str]], bytes]) -> Callable[[Path], list[Path]]:
    """Write the good pairs as a single file."""

    def make(folder: Path) -> list[Path]:
        path = folder / name
        path.write_bytes(content(*([text.decode() for text in side] for side in good())))
        return [path]

    return make


def tsv(*, at: int = 30, instead: str) -> Callable[[Path], list[Path]]:
    def content(sources: list[str], targets: list[str]) -> bytes:
        lines = [f"{source}\t{target}" for source, target in zip(sources, targets, strict=True)]
        lines[at] = instead.format(source=sources[at], target=targets[at])
        return "".join(f"{text}\n" for text in lines).encode()

    return one("a.tsv", content)


def jsonl(instead: str) -> Callable[[Path], list[Path]]:
    def content(sources: list[str], targets: list[str]) -> bytes:
        rows = [{"translation": {"en": s, "de": t}} for s, t in zip(sources, targets, strict=True)]
        lines = [json.dumps(row) for row in rows]
        lines[30] = instead
        return "".join(f"{text}\n" for text in lines).encode()

    return one("a.jsonl", content)


def tmx(*, head: str = "", inner: str = "", cut: int | None = None) -> Callable[[Path], list[Path]]:
    def content(sources: list[str], targets: list[str]) -> bytes:
        units = [
            f'<tu><tuv xml:lang="en"><seg>{s}{inner}</seg></tuv><tuv xml:lang="de"><seg>{t}</seg></tuv></tu>\n'
            for s, t in zip(sources, targets, strict=True)
        ]
        whole_file = f'<?xml version="1.0"?>\n{head}<tmx version="1.4"><header/><body>{"".join(units)}</body></tmx>'
        return whole_file.encode()[:cut]

    return one("a.tmx", content)


def swap_some(folder: Path) -> list[Path]:
    sides = good()
    for i in (30, 40):
        sides[0][i], sides[1][i] = sides[1][i], sides[0][i]
    path = folder / "a.tsv"
    path.write_bytes(b"".join(source + b"\t" + target + b"\n" for source, target in zip(*sides, strict=True)))
    return [path]


def only(n: int, source: bytes, target: bytes) -> Callable[[Path], list[Path]]:
    return lambda folder: write(folder, ([source] * n, [target] * n))


def remove(side: int, at: int) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        sides = good()
        for i in range(N):  # lengths that show where the sides no longer match
            sides[0][i] += b" and on" * (i * 7 % 11)
            sides[1][i] += b" und so" * (i * 7 % 11)
        del sides[side][at]
        return write(folder, sides)

    return make


def zipped(folder: Path) -> list[Path]:
    source, target = write(folder, good())
    content = source.read_bytes()
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a.en", content)
    return [source, target]


def folder_instead(folder: Path) -> list[Path]:
    (folder / "a.en").mkdir()
    return [folder / "a.en", write_target(folder)]


def write_target(folder: Path) -> Path:
    path = folder / "a.de"
    path.write_bytes(b"Ein Hund.\n")
    return path


def bomb(folder: Path) -> list[Path]:
    """Write 200 MB of one letter without a newline, compressed to 200 kB."""
    with gzip.open(folder / "a.en.gz", "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(b"a" * 1_000_000)
    return [folder / "a.en.gz", write_target(folder)]


LAUGHS = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
EXTERNAL = '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
UNKNOWN_ENTITY = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
DEEP = "[" * 200_000

DAMAGES = [
    Damage("good", line()),
    # byte order marks and line ends
    Damage("BOM", whole(lambda text: b"\xef\xbb\xbf" + text), {"bom": 1}),
    Damage("BOM inside, as cat joins files", line(b"\xef\xbb\xbf{}"), {"inner-bom": 1}),
    Damage("CRLF", lambda folder: write(folder, good(), end=b"\r\n"), {"crlf": 2 * N}),
    Damage("CRLF on one side", whole(lambda text: text.replace(b"\n", b"\r\n")), {"crlf": N}),
    Damage("no final newline", whole(lambda text: text[:-1]), {"unterminated": 1}),
    Damage("lone CR", line(b"{} and\rmore"), {"carriage-return": 1}),
    Damage(
        "old Mac line ends",
        whole(lambda text: text.replace(b"\n", b"\r")),
        {"counts": 1, "carriage-return": 1, "long": 1, "ratio": 1, "unterminated": 1},
        refuses=("a.en: 1 line, but", "a.de has 60"),
        fatal=True,
    ),
    # characters at which other tools split a line
    *(
        Damage(
            f"U+{ord(character):04X}", line(f"{{}} a{character}b".encode(), f"{{}} a{character}b".encode()), {kind: 2}
        )
        for character, kind in [
            *((separator, "separator") for separator in "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"),
            *(("\0", "nul"), ("\x1b", "control"), ("\x92", "control"), ("\ufffd", "replacement")),
        ]
    ),
    # bytes that are not UTF-8
    *(
        Damage(
            name,
            line(None, b"{} " + planted),
            {"encoding": 1},
            refuses=("a.de: line 31 (byte ", f"byte 0x{planted[0]:02X}", guess, "iconv", "on_bad_line=skip"),
            with_skip=N - 1,
            fatal=True,
        )
        for name, planted, guess in [
            ("Latin-1", b"\xe9 caf", "Probably Latin-1"),
            ("Windows-1252", b"\x93quote", "Probably Windows-1252"),
            ("overlong", b"\xc0\xaf", "overlong"),
            ("surrogates in UTF-8", b"\xed\xa0\x80", "surrogate"),
            ("cut in the middle of a character", "ä".encode()[:1], "Probably Latin-1"),
            ("above U+10FFFF", b"\xf4\x90\x80\x80", "Latin-1"),
        ]
    ),
    Damage(
        "no text at all",
        line(None, b"\x89PNG\0\0\0\rIHDR"),
        {"binary": 1},
        refuses=("a.de: line 31 (byte ", "not a text file: it has NUL bytes. Is it the right file?"),
        with_skip=N - 1,
        fatal=True,
    ),
    *(
        Damage(
            encoding,
            whole(lambda text, encoding=encoding: text.decode().encode(encoding)),
            {"utf16": 1},
            refuses=("a.en: line 1 (byte 0)", words, "iconv -f utf-"),
            fatal=True,
        )
        for encoding, words in [
            ("utf-16", "byte order mark"),
            ("utf-16-le", "UTF-16LE"),
            ("utf-16-be", "UTF-16BE"),
            ("utf-32", "UTF-32"),
        ]
    ),
    # lengths
    Damage("empty files", only(0, b"", b""), {"empty-file": 1}, refuses=("a.en + a.de", "no line"), fatal=True),
    Damage(
        "one empty file",
        whole(lambda text: b""),
        {"counts": 1},
        refuses=("a.en: 0 lines", "a.de has 60"),
        fatal=True,
    ),
    Damage("10 MB line", line(b"{} " + b"long " * 2_000_000, b"{} " + b"lang " * 2_000_000), {"long": 2}),
    Damage(
        "17 MiB line",
        line(b"{} " + b"x" * (17 << 20)),
        {"too-long": 1},
        refuses=("a.en: line 31", "at most 16,777,216"),
        with_skip=N - 1,
        fatal=True,
    ),
    Damage(
        "decompression bomb",
        bomb,
        {"too-long": 1, "unterminated": 0},
        refuses=("a.en.gz: line 1", "200,000,000"),
        fatal=True,
    ),
    Damage(
        "one line less at the end",
        remove(1, N - 1),
        {"counts": 1},
        refuses=("60 lines", "has 59", "the first 59 fit"),
        fatal=True,
    ),
    Damage(
        "one line less in the middle",
        remove(0, 20),
        {"counts": 1, "language": 0},
        refuses=("59 lines", "has 60", "about line 21"),
        fatal=True,
    ),
    Damage("one side empty", line(b""), {"empty": 1}, reads=N - 1),
    Damage("one side nothing but spaces", line(None, " \t\u3000".encode()), {"empty": 1}, reads=N - 1),
    Damage("both sides empty", line(b"", b""), {"empty": 1}, reads=N - 1),
    Damage("length ratio", line(None, b"{}" + b" und so weiter" * 40), {"ratio": 1}),
    # contents
    Damage("nothing but duplicates", only(N, b"A dog 7.", b"Ein Hund 7."), {"duplicate": N - 1}),
    Damage("source = target", only(1, b"A dog 7.", b"A dog 7. "), {"copy": 1}, reads=1),
    Damage("swapped columns", swap_some, {"swapped": 2}),
    Damage("another script", line("Совсем другой язык, число 30".encode()), {"script": 1}),
    Damage("untranslated", line(None, b"A dog with the number 30 runs to the garden and the house."), {"language": 1}),
    # data that is not text
    Damage("gz as text", whole(gzip.compress), {"compressed": 1}, refuses=("a.en", "gzip data", ".gz"), fatal=True),
    Damage("xz as text", whole(lzma.compress), {"compressed": 1}, refuses=("a.en", "xz data"), fatal=True),
    Damage("bz2 as text", whole(bz2.compress), {"compressed": 1}, refuses=("a.en", "bzip2 data"), fatal=True),
    Damage("zip as text", zipped, {"compressed": 1}, refuses=("a.en", "zip archive", "unzip"), fatal=True),
    Damage(
        "text as gz",
        whole(lambda text: text, name="a.en.gz"),
        {"compressed": 1},
        refuses=("a.en.gz", "no gzip data"),
        fatal=True,
    ),
    Damage(
        "gz cut short",
        whole(lambda text: gzip.compress(text)[:-30], name="a.en.gz"),
        {"damaged": 1},
        refuses=("a.en.gz", "cut off or damaged"),
        fatal=True,
    ),
    Damage(
        "xz with a flipped byte",
        whole(lambda text: (packed := lzma.compress(text))[:-40] + b"\xff" * 4 + packed[-36:], name="a.en.xz"),
        {"damaged": 1},
        refuses=("a.en.xz", "cut off or damaged"),
        fatal=True,
    ),
    Damage("folder", folder_instead, refuses=("a.en", "folder"), says=("a.en", "folder")),
    Damage(
        "missing file",
        lambda folder: [folder / "a.en", write_target(folder)],
        refuses=("a.en: no such file", "did you mean 'a.de'"),
        says=("a.en: no such file",),
    ),
    Damage("CSV", one("a.csv", lambda *_: b"a,b\n"), refuses=("CSV is not read",)),
    # TSV
    Damage(
        "TSV without TAB",
        tsv(instead="{source} {target}"),
        {"columns": 1},
        refuses=("a.tsv: line 31", "1 column, 2 are needed"),
        with_skip=N - 1,
        fatal=True,
    ),
    Damage("TSV with quotes", tsv(instead='"{source}\t"{target}'), {}),
    Damage("TSV with one TAB more", tsv(instead="{source}\tx\t{target}"), {"extra-columns": 1, "ratio": 0}),
    Damage("TSV with a blank line", tsv(instead=""), {"empty": 1}, reads=N - 1),
    # JSONL
    *(
        Damage(name, jsonl(text), {kind: 1}, refuses=("a.jsonl: line 31", words), with_skip=N - 1, fatal=True)
        for name, text, kind, words in [
            ("JSONL cut short", '{"translation": {"en": "A d', "json", "Unterminated string"),
            ("JSONL nested deeply", DEEP, "json", "nested too deeply"),
            (
                "JSONL with a key twice",
                '{"translation": {"en": "a", "en": "b", "de": "c"}}',
                "json",
                "'en' occurs twice",
            ),
            ("JSONL without a key", '{"translation": {"en": "a"}}', "json", "no key 'de'; the keys are: en"),
            ("JSONL of another shape", '["a", "b"]', "json", "object was expected, not list"),
            ("JSONL with a number for text", '{"translation": {"en": 1.5, "de": "x"}}', "json", "not a text but float"),
            ("JSONL with half a pair", '{"translation": {"en": "\\ud800", "de": "x"}}', "encoding", "surrogate"),
        ]
    ),
    Damage("JSONL with a blank line", jsonl(""), {"blank": 1}, reads=N - 1),
    Damage("JSONL with null", jsonl('{"translation": {"en": "a", "de": null}}'), {"empty": 1}, reads=N - 1),
    # TMX
    Damage(
        "TMX that laughs",
        tmx(head=LAUGHS, inner="&b;"),
        {"xml": 1},
        refuses=("a.tmx: line 2", "internal declarations"),
        fatal=True,
    ),
    Damage("TMX that fetches", tmx(head=EXTERNAL, inner="&x;"), {"xml": 1}, refuses=("a.tmx: line 2",), fatal=True),
    Damage(
        "TMX with unknown entities", tmx(head=UNKNOWN_ENTITY, inner="&x;"), {"xml": 1}, refuses=("&x;",), fatal=True
    ),
    Damage("TMX cut short", tmx(cut=1000), {"xml": 1}, refuses=("a.tmx: line ", "no element found"), fatal=True),
    Damage("TMX with inline tags", tmx(inner="<ph>{1}</ph>"), {"markup": N}),
    # Parquet
    Damage(
        "Parquet that is none",
        one("a.parquet", lambda *_: b"PAR1 and nothing more"),
        {"damaged": 1},
        refuses=("a.parquet", "not a readable Parquet"),
        fatal=True,
    ),
]


def count_matching_pairs(corpus: Corpus) -> int:
    """Count the pairs, after checking that each has the same number on both sides, or none."""
    n = 0
    for example in corpus:
        source, target = (re.search(r"\d+", text) for text in (example.source, example.target))
        assert source is None or target is None or source.group() == target.group(), example
        if source and corpus.format != "parquet" and source.group() != "7":
            assert int(source.group()) == example.line - (2 if corpus.format == "tmx" else 1), example
        n += 1
    return n


def opened(paths: list[Path], **options: str) -> Corpus:
    return open_corpus(paths, **options)  # type: ignore[arg-type]


def test_there_are_at_least_forty_kinds_of_damage() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES) >= 40


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_reader(damage: Damage, tmp_path: Path) -> None:
    paths = damage.make(tmp_path)
    if not damage.refuses:
        assert count_matching_pairs(opened(paths)) == damage.reads
        return
    with pytest.raises(UserError) as refusal:
        count_matching_pairs(opened(paths))
    for words in damage.refuses:
        assert words in str(refusal.value)
    if damage.with_skip is not None:
        skipping = opened(paths, on_bad_line="skip")
        assert count_matching_pairs(skipping) == damage.with_skip
        assert skipping.skipped.total() == N - damage.with_skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_check(damage: Damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = damage.make(tmp_path)
    code = run(["check", *map(str, paths), "--json"])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if not out:
        assert code == 1
        assert all(words in err for words in damage.says or damage.refuses)
        return
    assert code == (1 if damage.fatal else 0)
    counts: dict[str, int] = {}
    for finding in json.loads(out)["corpora"][0]["findings"]:
        counts[finding["kind"]] = counts.get(finding["kind"], 0) + finding["count"]
        assert 1 <= len(finding["examples"]) <= 3
        for example in finding["examples"]:  # an empty corpus is named by both files
            assert example["file"] in {*map(str, paths), "a.en + a.de"}
    assert {kind: n for kind, n in counts.items() if damage.finds.get(kind) != 0} == {
        kind: n for kind, n in damage.finds.items() if n
    }


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_fix(damage: Damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cleaned corpus has no fatal problem and no shifted pair; a corpus that cannot be cleaned leaves nothing."""
    paths = damage.make(tmp_path)
    before = {path: path.read_bytes() for path in paths if path.is_file()}
    out = tmp_path / "out"
    code = run(["check", *map(str, paths), "--fix", str(out)])
    assert {path: path.read_bytes() for path in before} == before
    assert "Traceback" not in capsys.readouterr().err
    if code != 0:
        assert not out.exists()
        assert {path.name for path in tmp_path.iterdir()} <= {"a.en", "a.de", *(path.name for path in paths)}
        return
    fixed = [out / path.name.replace(".tmx", ".jsonl") for path in paths]
    numbers = 0
    for example in open_corpus(fixed):
        source, target = (re.search(r"\d+", text) for text in (example.source, example.target))
        assert source is None or target is None or source.group() == target.group()
        numbers += 1
    log = [json.loads(text) for text in (out / "dropped.jsonl").read_text(encoding="utf-8").splitlines()]
    assert numbers + sum(row["action"] == "dropped" for row in log) == (
        N - 1 if "blank" in damage.finds or damage.name == "source = target" else N
    )
    assert run(["check", *map(str, fixed)]) == 0


@contextmanager
def another_user() -> Iterator[None]:
    """Run the block as another user, because the superuser may read every file."""
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("this superuser cannot become another user")
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_without_read_permission(tmp_path: Path) -> None:
    paths = line()(tmp_path)
    paths[0].chmod(0)
    with another_user(), pytest.raises(UserError, match=r"a\.en: this user may not read it"):
        open_corpus(paths)
