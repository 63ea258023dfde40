"""`heedful check --fix`: write a cleaned copy of a corpus, and log each example that was dropped or changed.

The corpus itself is never changed. The new folder appears when everything in it is written, or not at all. Each file
keeps its name, format and compression, except that TMX and Parquet become JSONL.
"""

import bz2
import gzip
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import Match
from typing import BinaryIO, Protocol, TextIO, cast

from heedful.atomic_io import MANIFEST, atomic_folder
from heedful.data.check import BAD_CHARACTERS, CheckedRecord, CorpusChecker, Report
from heedful.data.corpus import FATAL, Corpus
from heedful.data.formats import Field, Record, parse_object
from heedful.data.lines import plain_name
from heedful.data.problems import KINDS, Problem, remedy_for
from heedful.errors import UserError

LOG = "dropped.jsonl"
# Replacements of bad characters, by default a space. A line break in the middle of a text stays.
REPLACEMENTS = {"nul": "", "inner_bom": "", "line_break": "\n"}
# A line of running text is part of a document: it is dropped only if it cannot be used, or is in a test set.
DROPPED_FROM_TEXT = FATAL | {"overlap"}

Texts = Sequence[str]


@dataclass
class CleanResult:
    """The outcome for one corpus: the number of examples kept, and those dropped or changed by kind of problem."""

    report: Report
    n_kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)


def write_clean(
    corpora: Sequence[Corpus],
    folder: Path,
    *,
    test_sources: dict[str, str] | None = None,
    progress: Callable[[Report, Field], None] | None = None,
) -> list[CleanResult]:
    """Write a cleaned copy of each corpus, and the log `dropped.jsonl`, into the new folder `folder`.

    See `check_corpus` for `test_sources` and `progress`.
    """
    _refuse_folder(folder, corpora)
    results = []
    try:
        with atomic_folder(folder) as aside, (aside / LOG).open("w", encoding="utf-8") as log:
            for corpus in corpora:
                results.append(_clean_corpus(corpus, aside, log, test_sources, progress))
    except OSError as error:  # in writing; an error in reading is BadData
        raise UserError(f"--fix {folder}: cannot be written: {error.strerror or error}; nothing was kept") from None
    return results


def clean_names(corpus: Corpus) -> list[str]:
    """List the names of the files in the cleaned copy: those of the corpus, except a.tmx.gz -> a.jsonl.gz."""
    if corpus.format not in ("tmx", "parquet"):
        return [path.name for path in corpus.paths]
    (path,) = corpus.paths
    plain = plain_name(path)
    return [f"{Path(plain).stem}.jsonl{path.name.removeprefix(plain)}"]


def _clean_corpus(
    corpus: Corpus,
    folder: Path,
    log: TextIO,
    test_sources: dict[str, str] | None,
    progress: Callable[[Report, Field], None] | None,
) -> CleanResult:
    checker = CorpusChecker(corpus, test_sources=test_sources)
    result = CleanResult(checker.report)
    writer = WRITERS[corpus.format](corpus, folder)
    try:
        for chunk in checker:
            for checked in chunk:
                _clean_record(checked, corpus, result, log, writer.write)
            if progress:
                progress(checker.report, chunk[-1].record.fields[0])
    finally:
        writer.close()
    _refuse_hopeless(result)
    return result


def _clean_record(
    checked: CheckedRecord, corpus: Corpus, result: CleanResult, log: TextIO, write: Callable[..., None]
) -> None:
    record, problems = checked
    if any(problem.kind == "blank" for _, problem in problems) and corpus.content != "text":
        return  # a blank line of JSONL is not an example
    reason = next((located for located in problems if _drops(located[1], corpus)), None)
    if reason is None:
        texts = [_clean_text(part.text) for part in record.fields]
        if corpus.content != "text" and not all(text.strip() for text in texts):
            reason = (0, Problem("empty", "nothing but control characters"))
    if reason is not None:
        result.dropped[reason[1].kind] += 1
        _log(log, "dropped", corpus, record.fields, *reason)
        return
    for side, problem in problems:
        if KINDS[problem.kind].fix == "change":
            result.changed[problem.kind] += 1
            if problem.kind not in ("bom", "crlf", "unterminated"):  # not logged: CRLF is on every line
                _log(log, "changed", corpus, record.fields, side, problem)
    result.n_kept += 1
    write(record, texts)


def _drops(problem: Problem, corpus: Corpus) -> bool:
    if corpus.content == "text":
        return problem.kind in DROPPED_FROM_TEXT
    return KINDS[problem.kind].fix in ("drop", "refuse")


def _clean_text(text: str) -> str:
    return text if text.isprintable() else BAD_CHARACTERS.sub(_replacement, text)


def _replacement(match: Match[str]) -> str:
    return REPLACEMENTS.get(str(match.lastgroup), " ")


def _log(log: TextIO, action: str, corpus: Corpus, fields: tuple[Field, ...], side: int, problem: Problem) -> None:
    part = fields[side]
    row = {
        "action": action,
        "kind": problem.kind,
        "file": str(corpus.field_paths[side]),
        "line": part.line,
        "byte": part.byte if problem.byte is None else problem.byte,
        "value": problem.value,
        "texts": [part.text for part in fields],
    }
    line = json.dumps(row, ensure_ascii=False)
    # JSON does not escape these characters, but str.splitlines() would split the log at them.
    log.write(re.sub("[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match.group()):04x}", line) + "\n")


def _refuse_folder(folder: Path, corpora: Sequence[Corpus]) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--fix {folder}: exists and is not empty. Name a new folder: nothing is overwritten")
    names = Counter(name for corpus in corpora for name in clean_names(corpus))
    for name, count in names.items():
        if count > 1 or name in (LOG, MANIFEST):
            raise UserError(f"--fix {folder}: more than one file would be called {name} there. Fix them one by one")


def _refuse_hopeless(result: CleanResult) -> None:
    for finding in result.report.in_order():
        if KINDS[finding.kind].fix == "refuse":
            place, value = finding.examples[0]
            remedy = remedy_for(finding.kind, finding.file)
            raise UserError(f"{place}: {value}. --fix cannot repair this; nothing was written. {remedy}")
    if result.n_kept == 0:
        reasons = ", ".join(f"{count:,} × {KINDS[kind].what}" for kind, count in result.dropped.most_common())
        raise UserError(f"{result.report.corpus.name}: nothing would be left ({reasons}); nothing was written")


# Writers


class Writer(Protocol):
    """Writes the examples that are kept."""

    def write(self, record: Record, texts: Texts) -> None: ...
    def close(self) -> None: ...


class TextWriter:
    """Writes plain text: a file for each side, a line for each text."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._streams = [open_for_writing(folder / name) for name in clean_names(corpus)]

    def write(self, record: Record, texts: Texts) -> None:
        for stream, text in zip(self._streams, texts, strict=True):
            stream.write(text.encode() + b"\n")

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


class TableWriter:
    """Writes TSV and JSONL. A line stays as it was except for changed texts; other columns and keys are kept.

    Records of TMX and Parquet, which have no line, become objects with the keys of their texts.
    """

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._stream = open_for_writing(folder / clean_names(corpus)[0])
        self._corpus = corpus

    def write(self, record: Record, texts: Texts) -> None:
        changed = {
            side: text
            for side, (part, text) in enumerate(zip(record.fields, texts, strict=True))
            if part.text != text or not record.raw
        }
        line = self._changed_line(record, changed).encode() if changed else record.raw
        self._stream.write(line + b"\n")

    def _changed_line(self, record: Record, changed: dict[int, str]) -> str:
        if self._corpus.format == "tsv":
            parts = record.raw.decode().split("\t")
            for side, text in changed.items():
                parts[self._corpus.columns[side] - 1] = text
            return "\t".join(parts)
        assert record.keys is not None
        row = parse_object(record.raw.decode()) if record.raw else {}
        names = tuple(record.keys.names[side] for side in changed)
        record.keys._replace(names=names).put(row, list(changed.values()))
        return json.dumps(row, ensure_ascii=False)

    def close(self) -> None:
        self._stream.close()


WRITERS: dict[str, Callable[[Corpus, Path], Writer]] = {
    "text": TextWriter,
    "pair": TextWriter,
    "tsv": TableWriter,
    "jsonl": TableWriter,
    "tmx": TableWriter,
    "parquet": TableWriter,
}


def open_for_writing(path: Path) -> BinaryIO:
    """Open a file for writing, compressed by its suffix."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "wb", compresslevel=6))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "wb", preset=1))
    if path.suffix == ".bz2":
        return cast(BinaryIO, bz2.open(path, "wb"))
    return path.open("wb")
