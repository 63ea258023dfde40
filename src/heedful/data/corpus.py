"""Read files of any supported format as `Example`s: pairs, running text or labelled text.

`open_corpus` reads pairs, `read_text` text for language models, `read_labelled` texts with labels. A corpus is read
line by line, in the order of its file, as often as it is iterated over. An example is left out on both sides or not at
all, so line n of one side always stays with line n of the other.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from heedful.data.formats import (
    Record,
    jsonl_records,
    pair_records,
    parquet_records,
    require_equal_counts,
    text_records,
    tsv_records,
)
from heedful.data.lines import MAX_LINE_BYTES, is_pipe, open_bytes, plain_name
from heedful.data.problems import KINDS, BadData, Content, Location, Problem, remedy_for
from heedful.data.tmx import tmx_records
from heedful.errors import UserError, invalid_choice

OnBadLine = Literal["error", "skip"]
Format = Literal["text", "pair", "tsv", "jsonl", "tmx", "parquet"]
Paths = str | Path | Sequence[str | Path]

# By suffix, after .gz, .xz or .bz2 is removed; all other names are plain text.
SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tmx": "tmx",
    ".parquet": "parquet",
}
NAMES_LANGUAGES = frozenset({"jsonl", "tmx", "parquet"})  # formats in which texts are stored by language
FATAL = frozenset(name for name, kind in KINDS.items() if kind.severity == "fatal")


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence pair, a line of text (target ""), or a text and its label."""

    source: str
    target: str = ""
    line: int = field(default=0, compare=False)  # in its file, from 1 (in Parquet, the row)


@dataclass(frozen=True)
class Corpus:
    """The examples of one file, or of two aligned ones; iterate over it as often as you like.

    `skipped` counts the examples that the last iteration left out, by kind of problem.
    """

    paths: tuple[Path, ...]
    content: Content
    format: Format
    languages: tuple[str, str] | None = None
    columns: tuple[int, int] = (1, 2)
    on_bad_line: OnBadLine = "error"
    keep_empty: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    skipped: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def name(self) -> str:
        """The names of the files, for messages."""
        return " + ".join(path.name for path in self.paths)

    def __iter__(self) -> Iterator[Example]:
        if self.format == "pair":
            require_equal_counts(*self.paths)
        self.skipped.clear()
        n = 0
        for record in self.records():
            reason = self._reason_to_skip(record)
            if reason:
                self.skipped[reason] += 1
                continue
            n += 1
            texts = [part.text for part in record.fields]
            yield Example(texts[0], texts[1] if len(texts) > 1 else "", record.fields[0].line)
        if n == 0:
            reasons = ", ".join(f"{count:,} {KINDS[kind].what}" for kind, count in self.skipped.items())
            raise BadData("empty-file", Location(self.name), f"no usable example ({reasons})")

    def records(self) -> Iterator[Record]:
        """Read all records, with their problems; BadData if a file as a whole cannot be used."""
        n = 0
        for record in self._records():
            n += 1
            yield record
        if n == 0:
            raise BadData("empty-file", Location(self.name), "no line in it")

    def fingerprint(self) -> str:
        """Compute a SHA-256 over the bytes of the files and the options of reading them."""
        digest = hashlib.sha256(
            repr((self.format, self.content, self.languages, self.columns, self.keep_empty)).encode()
        )
        for path in self.paths:
            with open(path, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()

    def place(self, example: Example) -> str:
        """Say where an example is, for a message: `train.en:12 + train.de:12`."""
        return " + ".join(f"{path}:{example.line}" for path in self.paths)

    def _records(self) -> Iterator[Record]:
        path, limit = self.paths[0], self.max_line_bytes
        if self.format == "pair":
            return pair_records(path, self.paths[1], max_bytes=limit)
        if self.format == "text":
            return text_records(path, max_bytes=limit)
        if self.format == "tsv":
            return tsv_records(path, columns=self.columns, max_bytes=limit)
        if self.format == "jsonl":
            return jsonl_records(path, content=self.content, languages=self.languages, max_bytes=limit)
        if self.format == "tmx":
            return tmx_records(path, languages=self.languages, max_bytes=limit)
        return parquet_records(path, content=self.content, languages=self.languages)

    def _reason_to_skip(self, record: Record) -> str:
        """Return the kind of problem because of which a record is left out, or "".

        A fatal problem raises BadData unless `on_bad_line` is "skip".
        """
        for path, part in zip(self.field_paths, record.fields, strict=True):
            for problem in part.problems:
                if problem.kind in FATAL:
                    if self.on_bad_line == "error":
                        raise self._refusal(path, part.line, problem, part.byte)
                    return problem.kind
        if any(not part.text or part.text.isspace() for part in record.fields):
            if self.content == "text":
                return "" if self.keep_empty else "blank"
            return "blank" if Problem("blank") in record.fields[0].problems else "empty"
        return ""

    def _refusal(self, path: Path, line: int, problem: Problem, byte: int | None) -> BadData:
        """Make the error for a line's problem; unlike the problem of a whole file, it can be skipped."""
        remedy = remedy_for(problem.kind, str(path), content=self.content)
        place = Location(str(path), line, byte if problem.byte is None else problem.byte)
        ways = f"{remedy}\nOr leave such lines out: data.on_bad_line=skip"
        return BadData(problem.kind, place, problem.value, remedy=ways)

    @property
    def field_paths(self) -> tuple[Path, ...]:
        """The file of each field of a record."""
        if self.format == "pair":
            return self.paths
        return self.paths if self.content == "text" else self.paths * 2


def open_corpus(
    paths: Paths,
    *,
    languages: tuple[str, str] | None = None,
    columns: tuple[int, int] = (1, 2),
    on_bad_line: OnBadLine = "error",
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Corpus:
    """Open a corpus of sentence pairs: two aligned text files, or one .tsv, .jsonl, .tmx or .parquet file.

    All but Parquet may be compressed (.gz, .xz, .bz2). `languages` chooses the source and target language in a file
    that has texts by language; `columns` chooses them in a TSV, counted from 1. `on_bad_line="skip"` leaves out lines
    that cannot be used, instead of raising an error.

        corpus = open_corpus(["train.en.gz", "train.de.gz"])
        for example in corpus:
            print(example.source, example.target)
    """
    files = _as_paths(paths)
    formats = [format_of(path) for path in files]
    if len(files) == 2:
        for path, kind in zip(files, formats, strict=True):
            if kind != "text":
                raise UserError(
                    f"{path}: two files must be the two sides in plain text, line by line; give this one alone"
                )
        form: Format = "pair"
    elif len(files) == 1 and formats[0] != "text":
        form = formats[0]
    elif len(files) == 1:
        known = ", ".join(dict.fromkeys(SUFFIXES))
        raise UserError(
            f"{files[0]}: one plain text file has only one side of a corpus. Give two, or one file of pairs: {known}"
        )
    else:
        names = ", ".join(map(str, files))
        raise UserError(f"{len(files)} files given ({names}); expected two text files, or one file with both sides")
    _check_columns(columns)
    return _checked(Corpus(files, "pairs", form, languages, columns, on_bad_line, max_line_bytes=max_line_bytes))


def read_text(
    path: str | Path,
    *,
    keep_empty: bool = False,
    on_bad_line: OnBadLine = "error",
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Corpus:
    """Open running text for a language model: plain text, or .jsonl or .parquet with the key "text".

    Blank lines, which often separate documents, are left out and counted unless `keep_empty` is set.
    """
    files = _as_paths(path)
    form = format_of(files[0])
    form = "text" if form == "tsv" else form
    if form == "tmx":
        raise UserError(f"{path}: TMX holds pairs; running text comes as plain text, .jsonl or .parquet")
    corpus = Corpus(files, "text", form, keep_empty=keep_empty, on_bad_line=on_bad_line, max_line_bytes=max_line_bytes)
    return _checked(corpus)


def read_labelled(
    path: str | Path,
    *,
    columns: tuple[int, int] = (1, 2),
    on_bad_line: OnBadLine = "error",
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Corpus:
    """Open texts with labels: lines of text TAB label, or .jsonl or .parquet with the keys "text" and "label".

    With `columns=(2, 1)` the lines are label TAB text.
    """
    files = _as_paths(path)
    form = format_of(files[0])
    if form == "tmx":
        raise UserError(f"{path}: TMX holds pairs; labelled text comes as text TAB label, .jsonl or .parquet")
    _check_columns(columns)
    form = "tsv" if form == "text" else form
    return _checked(
        Corpus(files, "labels", form, columns=columns, on_bad_line=on_bad_line, max_line_bytes=max_line_bytes)
    )


def format_of(path: Path) -> Format:
    """Find the format of a file by its suffix."""
    suffix = Path(plain_name(path)).suffix.lower()
    if suffix == ".csv":
        raise UserError(f"{path}: CSV is not read, because its quoting has many dialects. Convert it to .tsv or .jsonl")
    return SUFFIXES.get(suffix, "text")


def _checked(corpus: Corpus) -> Corpus:
    """Check the options and the files now, so that errors do not come only when reading begins."""
    if corpus.on_bad_line not in ("error", "skip"):
        raise invalid_choice("on_bad_line", corpus.on_bad_line, ["error", "skip"])
    for path in corpus.paths:
        if not is_pipe(path):
            open_bytes(path).close()
    return corpus


def _check_columns(columns: tuple[int, int]) -> None:
    if len(columns) != 2 or min(columns) < 1 or columns[0] == columns[1]:
        raise UserError(f"columns {columns}: expected two different columns, counted from 1, for example (1, 2)")


def _as_paths(paths: Paths) -> tuple[Path, ...]:
    return (Path(paths),) if isinstance(paths, (str, Path)) else tuple(Path(path) for path in paths)
