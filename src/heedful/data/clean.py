"""Records back into files of the format they came from, for `--fix`.

`--fix`: a cleaned copy of a corpus, and a log of every example that was dropped or changed, and why.

Nothing is edited in place. The folder appears when everything in it is written, or not at all.
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
from typing import Any, BinaryIO, Protocol, TextIO, cast
from xml.sax.saxutils import escape, quoteattr

from heedful.atomic_io import atomic_folder
from heedful.data.check import BAD_CHARACTERS, CheckedRecord, CorpusChecker, Report
from heedful.data.corpus import FATAL, Corpus
from heedful.data.formats import ROWS, Field, Record, find_parquet_fields, open_parquet, parse
from heedful.data.problems import KINDS, Problem, remedy_for
from heedful.data.tmx import tmx_languages
from heedful.errors import UserError

Texts = Sequence[str]


class Writer(Protocol):
    def write(self, record: Record, texts: Texts) -> None: ...
    def close(self) -> None: ...


class TextWriter:
    """One file for each side, one line for each text."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._streams = [open_for_writing(folder / path.name) for path in corpus.paths]

    def write(self, record: Record, texts: Texts) -> None:
        for stream, text in zip(self._streams, texts, strict=True):
            stream.write(text.encode() + b"\n")

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


class LineWriter:
    """TSV and JSONL: the line as it was, with nothing but changed texts replaced; other columns and keys stay."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._stream = open_for_writing(folder / corpus.paths[0].name)
        self._corpus = corpus

    def write(self, record: Record, texts: Texts) -> None:
        pairs = zip(record.cells, texts, strict=True)
        changed = {side: text for side, (cell, text) in enumerate(pairs) if cell.text != text}
        raw = self._replaced(record, changed).encode() if changed else record.raw
        self._stream.write(raw + b"\n")

    def _replaced(self, record: Record, changed: dict[int, str]) -> str:
        line = record.raw.decode()
        if self._corpus.format == "tsv":
            parts = line.split("\t")
            for side, text in changed.items():
                parts[self._corpus.columns[side] - 1] = text
            return "\t".join(parts)
        assert record.fields is not None
        row = parse(line)
        names = tuple(record.fields.names[side] for side in changed)
        record.fields._replace(names=names).put(row, list(changed.values()))
        return json.dumps(row, ensure_ascii=False)

    def close(self) -> None:
        self._stream.close()


class TmxWriter:
    """A plain TMX 1.4 with the two languages that were read."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._stream = open_for_writing(folder / corpus.paths[0].name)
        self._languages = corpus.languages or tmx_languages(corpus.paths[0])
        source = quoteattr(self._languages[0])
        self._stream.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header creationtool="heedful" '
            'creationtoolversion="1" segtype="sentence" o-tmf="plain" adminlang="en" datatype="plaintext" '
            f"srclang={source}/>\n<body>\n".encode()
        )

    def write(self, record: Record, texts: Texts) -> None:
        variants = "".join(
            f"<tuv xml:lang={quoteattr(language)}><seg>{escape(text)}</seg></tuv>"
            for language, text in zip(self._languages, texts, strict=True)
        )
        self._stream.write(f"<tu>{variants}</tu>\n".encode())

    def close(self) -> None:
        self._stream.write(b"</body>\n</tmx>\n")
        self._stream.close()


class ParquetWriter:
    """The columns that were read, with their names and types."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        file = open_parquet(corpus.paths[0])
        self._fields = find_parquet_fields(corpus.paths[0], file, content=corpus.content, languages=corpus.languages)
        inside = self._fields.inside
        self._schema = pyarrow.schema(
            [file.schema_arrow.field(name) for name in ([inside] if inside else self._fields.names)]
        )
        self._arrow: Any = pyarrow
        self._file = pyarrow.parquet.ParquetWriter(folder / corpus.paths[0].name, self._schema)
        self._rows: list[Texts] = []

    def write(self, record: Record, texts: Texts) -> None:
        self._rows.append(texts)
        if len(self._rows) == ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = [self._arrow.array(column) for column in zip(*self._rows, strict=True)]
        if self._fields.inside:
            columns = [self._arrow.StructArray.from_arrays(columns, names=list(self._fields.names))]
        self._file.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))  # which casts
        self._rows = []

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._file.close()


WRITERS: dict[str, Callable[[Corpus, Path], Writer]] = {
    "text": TextWriter,
    "pair": TextWriter,
    "tsv": LineWriter,
    "jsonl": LineWriter,
    "tmx": TmxWriter,
    "parquet": ParquetWriter,
}


def open_for_writing(path: Path) -> BinaryIO:
    """Compressed by suffix, as it was read."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "wb", compresslevel=6))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "wb", preset=1))
    if path.suffix == ".bz2":
        return cast(BinaryIO, bz2.open(path, "wb"))
    return path.open("wb")


LOG = "dropped.jsonl"
# What takes the place of a troublesome character; a line break inside a text is the text's own affair.
INSTEAD = {"nul": "", "inner_bom": "", "line_break": "\n"}
# Of running text a line is part of its document: only what must not stay is taken out.
DROPPED_FROM_TEXT = FATAL | {"overlap"}


@dataclass
class Repair:
    """What was written of one corpus: how many were kept, and how many dropped or changed, by kind."""

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
) -> list[Repair]:
    """Write each corpus, cleaned, under its own names into the new `folder`, beside `dropped.jsonl`."""
    _refuse_folder(folder, corpora)
    repairs = []
    try:
        with atomic_folder(folder) as aside, (aside / LOG).open("w", encoding="utf-8") as log:
            for corpus in corpora:
                repairs.append(_write_one(corpus, aside, log, test_sources, progress))
    except OSError as error:  # of writing: what goes wrong in reading is BadData
        raise UserError(f"--fix {folder}: cannot be written: {error.strerror or error}; nothing was kept") from None
    return repairs


def _write_one(
    corpus: Corpus,
    folder: Path,
    log: TextIO,
    test_sources: dict[str, str] | None,
    progress: Callable[[Report, Field], None] | None,
) -> Repair:
    checkup = CorpusChecker(corpus, test_sources=test_sources)
    repair = Repair(checkup.report)
    writer = WRITERS[corpus.format](corpus, folder)
    try:
        for judged in checkup:
            for one in judged:
                _repair(one, corpus, repair, log, writer.write)
            if progress:
                progress(checkup.report, judged[-1].record.cells[0])
    finally:
        writer.close()
    _refuse_hopeless(repair)
    return repair


def _repair(judged: CheckedRecord, corpus: Corpus, repair: Repair, log: TextIO, write: Callable[..., None]) -> None:
    record, problems = judged
    if any(problem.kind == "blank" for _, problem in problems) and corpus.content != "text":
        return  # a blank line of JSONL is no example
    reason = next((found for found in problems if _drops(found[1], corpus)), None)
    if reason is None:
        texts = [_clean(cell.text) for cell in record.cells]
        if corpus.content != "text" and not all(text.strip() for text in texts):
            reason = (0, Problem("empty", "nothing but control characters"))
    if reason is not None:
        repair.dropped[reason[1].kind] += 1
        _log(log, "dropped", corpus, record.cells, *reason)
        return
    for side, problem in problems:
        if KINDS[problem.kind].fix == "change":
            repair.changed[problem.kind] += 1
            if problem.kind not in ("bom", "crlf", "unterminated"):  # counted is enough: CRLF is on every line
                _log(log, "changed", corpus, record.cells, side, problem)
    repair.n_kept += 1
    write(record, texts)


def _drops(problem: Problem, corpus: Corpus) -> bool:
    if corpus.content == "text":
        return problem.kind in DROPPED_FROM_TEXT
    return KINDS[problem.kind].fix in ("drop", "refuse")


def _clean(text: str) -> str:
    return text if text.isprintable() else BAD_CHARACTERS.sub(_instead, text)


def _instead(match: Match[str]) -> str:
    return INSTEAD.get(str(match.lastgroup), " ")


def _log(log: TextIO, action: str, corpus: Corpus, cells: tuple[Field, ...], side: int, problem: Problem) -> None:
    cell = cells[side]
    row = {
        "action": action,
        "kind": problem.kind,
        "file": str(corpus.cell_paths[side]),
        "line": cell.line,
        "byte": cell.byte if problem.byte is None else problem.byte,
        "value": problem.value,
        "texts": [cell.text for cell in cells],
    }
    line = json.dumps(row, ensure_ascii=False)
    # JSON lets them stand as they are; whoever reads the log with splitlines() would break its rows there.
    log.write(re.sub("[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match.group()):04x}", line) + "\n")


def _refuse_folder(folder: Path, corpora: Sequence[Corpus]) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--fix {folder}: exists and is not empty. Name a new folder: nothing is overwritten")
    names = Counter(path.name for corpus in corpora for path in corpus.paths)
    for name, count in names.items():
        if count > 1 or name in (LOG, "manifest.json"):
            raise UserError(f"--fix {folder}: more than one file would be called {name} there. Fix them one by one")


def _refuse_hopeless(repair: Repair) -> None:
    for finding in repair.report.in_order():
        if KINDS[finding.kind].fix == "refuse":
            place, value = finding.examples[0]
            remedy = remedy_for(finding.kind, finding.file)
            raise UserError(f"{place}: {value}. --fix cannot repair this, nothing was written. {remedy}")
    if repair.n_kept == 0:
        reasons = ", ".join(f"{count:,} × {KINDS[kind].what}" for kind, count in repair.dropped.most_common())
        raise UserError(f"{repair.report.corpus.name}: nothing would be left ({reasons}); nothing was written")
