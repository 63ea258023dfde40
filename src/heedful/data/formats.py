"""Readers of corpus files: aligned text, TSV, JSONL and Parquet become `Record`s (TMX is in `tmx.py`).

A reader skips nothing and raises nothing because of one bad line: it yields a record with the problems that it found.
`Corpus` and `CorpusChecker` decide what a problem means. BadData is raised if a file as a whole cannot be used.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.data.lines import Line, count_lines, is_pipe, open_bytes, plain_name, read_lines
from heedful.data.problems import BadData, Content, Location, Problem, excerpt
from heedful.errors import MissingExtra, UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

HOW_TO_CHOOSE = 'heedful check --languages en,de; heedful train --set \'data.languages=["en","de"]\''
PARQUET_ROWS = 4096  # read at a time
MAX_SHIFT = 1000  # if one file has more lines too many than this, a single break does not explain it


class Field(NamedTuple):
    """One text of a record, where it is in its file, and the problems that the reader found in it."""

    text: str
    line: int  # from 1; in Parquet, the row
    byte: int | None = None
    problems: tuple[Problem, ...] = ()


class Record(NamedTuple):
    """One field for plain text, two for pairs and for labelled text.

    `raw` is the line of a format with one file (TSV, JSONL); `keys` are the JSON keys of the texts, if there are any.
    """

    fields: tuple[Field, ...]
    raw: bytes = b""
    keys: "JsonKeys | None" = None


# Plain text and TSV


def text_records(path: Path, *, max_bytes: int) -> Iterator[Record]:
    """Read one text per line."""
    for line in read_lines(path, max_bytes=max_bytes):
        yield Record((decode(line),))


def pair_records(source: Path, target: Path, *, max_bytes: int) -> Iterator[Record]:
    """Pair line n of one file with line n of the other; BadData where the shorter file ends.

    Call `require_equal_counts` first to refuse files of different lengths before the first pair.
    """
    sources, targets = read_lines(source, max_bytes=max_bytes), read_lines(target, max_bytes=max_bytes)
    n = 0
    for left in sources:
        right = next(targets, None)
        if right is None:
            raise _counts_differ(source, target, n + 1 + sum(1 for _ in sources), n)
        n += 1
        yield Record((decode(left), decode(right)))
    rest = sum(1 for _ in targets)
    if rest:
        raise _counts_differ(source, target, n, n + rest)


def require_equal_counts(source: Path, target: Path) -> None:
    """Raise BadData if two files have different numbers of lines: every pair after the missing line would be wrong."""
    if not is_pipe(source) and not is_pipe(target):
        n_source, n_target = count_lines(source), count_lines(target)
        if n_source != n_target:
            raise _counts_differ(source, target, n_source, n_target)


def _counts_differ(source: Path, target: Path, n_source: int, n_target: int) -> BadData:
    value = f"{n_source:,} line{'s' * (n_source != 1)}, but {target} has {n_target:,}"
    shifted = first_shifted_line(source, target)
    if shifted is not None and shifted > min(n_source, n_target):
        value += f"; by the lengths of the lines, the first {shifted - 1:,} fit and the rest comes after them"
    elif shifted is not None:
        value += f"; by the lengths of the lines, they stop fitting at about line {shifted:,}"
    return BadData("counts", Location(str(source)), value)


def first_shifted_line(source: Path, target: Path) -> int | None:
    """Guess the line from which two files no longer match, from the lengths of their lines alone.

    Returns None if the lengths do not show it, and n + 1 if only the end of the shorter file (n lines) is missing.
    Translations are about as long as their sources. So before the break line i fits line i, after it line i + k, where
    k is the difference of the numbers of lines; the break is where the sum of the misfits is smallest.
    """
    import numpy as np  # readers of lines, such as heedful translate, start without it

    if is_pipe(source) or is_pipe(target):
        return None
    lengths = [_log_lengths(path) for path in (source, target)]
    shorter, longer = sorted(lengths, key=len)
    shift = len(longer) - len(shorter)
    if len(shorter) < 20 or not 0 < shift <= MAX_SHIFT:
        return None
    n = len(shorter)
    usual = np.median(longer) - np.median(shorter)  # how much longer the texts of one language are
    before = np.abs(longer[:n] - shorter - usual)
    after = np.abs(longer[shift:] - shorter - usual)
    sum_before, sum_after = (np.concatenate([[0.0], np.cumsum(misfit)]) for misfit in (before, after))
    misfits = sum_before + sum_after[-1] - sum_after  # [p]: if lines are shifted after p
    best = int(np.argmin(misfits))
    opposite = sum_after[best] + sum_before[-1] - sum_before[best]
    return best + 1 if misfits[best] < 0.8 * opposite else None


def _log_lengths(path: Path) -> "npt.NDArray[np.float32]":
    import numpy as np

    sizes = np.fromiter((len(line.content) for line in read_lines(path)), dtype=np.float32)
    return np.log(sizes + 10)  # + 10: among short lines a few letters more mean nothing


def tsv_records(path: Path, *, columns: tuple[int, int] = (1, 2), max_bytes: int) -> Iterator[Record]:
    """Read two columns, counted from 1, of a tab-separated file; a quote is a character like any other.

    A line should have as many columns as the first line that has both: the file may begin with a blank line.
    """
    needed, width, wide_line = max(columns), 0, 0
    for line in read_lines(path, max_bytes=max_bytes):
        whole = decode(line)
        parts = whole.text.split("\t")
        problems = whole.problems
        if not width and len(parts) >= needed and not any(problem.kind == "too-long" for problem in problems):
            width, wide_line = len(parts), line.number
        if len(parts) < needed:
            if whole.text and not whole.text.isspace():  # a blank line is an empty pair, as in two aligned files
                value = f"{len(parts)} column{'s' * (len(parts) > 1)}, {needed} are needed: “{excerpt(whole.text)}”"
                problems = (*problems, Problem("columns", value))
            parts = [""] * needed
        elif width and len(parts) > width:
            problems = (*problems, Problem("extra-columns", f"{len(parts)} columns, line {wide_line} has {width}"))
        first, second = (Field(parts[column - 1], line.number, line.byte + _start(parts, column)) for column in columns)
        yield Record((first._replace(problems=problems) if problems else first, second), line.content)


def _start(parts: list[str], column: int) -> int:
    """Count the bytes before a column in its line."""
    return sum(len(part.encode()) + 1 for part in parts[: column - 1])


def decode(line: Line) -> Field:
    """Decode a line as UTF-8. If that fails, the text is empty and a problem has the byte and the likely encoding."""
    try:
        return Field(line.content.decode(), line.number, line.byte, line.problems)
    except UnicodeDecodeError as error:
        if any(problem.kind == "too-long" for problem in line.problems):  # it was cut, perhaps inside a character
            return Field("", line.number, line.byte, line.problems)
        kind = "binary" if b"\0" in line.content else "encoding"
        problem = Problem(kind, _bad_byte(line.content, error), line.byte + error.start)
        return Field("", line.number, line.byte, (*line.problems, problem))


def _bad_byte(content: bytes, error: UnicodeDecodeError) -> str:
    first = content[error.start]
    around = content[max(0, error.start - 20) : error.start + 20].decode("utf-8", "backslashreplace")
    return f"invalid UTF-8 byte 0x{first:02X} in “{excerpt(around)}”. {_guess_encoding(content, error.start)}"


def _guess_encoding(content: bytes, start: int) -> str:
    """Name the likely encoding, from the byte at `start`, which is invalid in UTF-8."""
    if b"\0" in content:
        return "This is not a text file: it has NUL bytes"
    first, second = content[start], content[start + 1 : start + 2]
    if first in (0xC0, 0xC1) or (first in (0xE0, 0xF0) and second and second[0] < 0xA0):
        return "An overlong form, as Java and some old tools write"
    if first == 0xED and second and second[0] >= 0xA0:
        return "Half of a surrogate pair, as CESU-8 writes"
    n_high = sum(byte >= 0x80 for byte in content)
    if 0x80 <= first <= 0x9F:
        return "Probably Windows-1252"
    return "Probably Latin-1" if n_high * 4 <= len(content) else "Some other encoding, or not text"


# JSON


class JsonKeys(NamedTuple):
    """The keys of the texts: two languages inside the object "translation", or one or two keys of the row itself."""

    names: tuple[str, ...]
    inside: str = ""  # the key of the object that has them

    def texts(self, row: Mapping[str, object]) -> list[str]:
        """Return the texts of a row; ValueError if a key is missing or its value is not a text."""
        holder: object = row
        if self.inside:
            holder = row.get(self.inside)
            if not isinstance(holder, Mapping):
                raise ValueError(f"no object below the key '{self.inside}'")
        assert isinstance(holder, Mapping)
        return [_text(holder, name) for name in self.names]

    def put(self, row: dict[str, object], texts: Sequence[str]) -> None:
        """Write texts into a row, where `texts` reads them."""
        holder = row.setdefault(self.inside, {}) if self.inside else row
        assert isinstance(holder, dict)
        holder.update(zip(self.names, texts, strict=True))


# The sets of keys that are looked for if no languages are given, in this order.
FLAT_KEYS: dict[Content, tuple[tuple[str, ...], ...]] = {
    "pairs": (("source", "target"), ("src", "tgt")),
    "text": (("text",),),
    "labels": (("text", "label"),),
}


def find_keys(row: Mapping[str, object], content: Content, languages: tuple[str, str] | None) -> JsonKeys:
    """Find the keys of the texts in the first row; ValueError with the keys that it has if they are not among them."""
    inner = row.get("translation")
    if content == "pairs" and isinstance(inner, Mapping):
        if languages is None and len(inner) != 2:
            raise ValueError(f"choose two of its languages ({HOW_TO_CHOOSE}): {_list(inner)}")
        pair = languages or tuple(inner)
        _require_keys(inner, pair)
        return JsonKeys(pair, inside="translation")
    if content == "pairs" and languages is not None and all(language in row for language in languages):
        return JsonKeys(languages)
    for names in FLAT_KEYS[content]:
        if all(name in row for name in names):
            return JsonKeys(names)
    needed = " and ".join(f"'{name}'" for name in FLAT_KEYS[content][0])
    also = ""
    if content == "pairs":
        also = f" (or 'translation' with two languages, or two keys that are chosen: {HOW_TO_CHOOSE})"
    raise ValueError(f"needs {needed}{also}; has only: {_list(row)}")


def _require_keys(row: Mapping[str, object], names: Iterable[str]) -> None:
    for name in names:
        if name not in row:
            raise ValueError(f"no key '{name}'; the keys are: {_list(row)}")


def _text(row: Mapping[str, object], name: str) -> str:
    _require_keys(row, [name])
    value = row[name]
    if isinstance(value, str):
        return value
    if value is None:  # Parquet and JSON both write null for "no translation": an empty side
        return ""
    if isinstance(value, int) and not isinstance(value, bool):  # labels are often numbers
        return str(value)
    raise ValueError(f"'{name}' is not a text but {type(value).__name__}")


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    return (", ".join(listed[:12]) + (", …" if len(listed) > 12 else "")) or "nothing"


def jsonl_records(
    path: Path, *, content: Content, languages: tuple[str, str] | None, max_bytes: int
) -> Iterator[Record]:
    """Read one JSON object per line; the first object that has the keys decides which ones are read."""
    keys: JsonKeys | None = None
    n_fields = 1 if content == "text" else 2
    for line in read_lines(path, max_bytes=max_bytes):
        whole = decode(line)
        if any(problem.kind in ("encoding", "binary", "too-long") for problem in whole.problems):
            yield _unusable(line, whole.problems, n_fields)
            continue
        if not whole.text or whole.text.isspace():
            yield _unusable(line, (*whole.problems, Problem("blank")), n_fields)
            continue
        try:
            row = parse_object(whole.text)
            keys = keys or find_keys(row, content, languages)
            texts = keys.texts(row)
        except ValueError as error:
            byte = None
            if isinstance(error, json.JSONDecodeError):
                byte = line.byte + len(whole.text[: error.pos].encode())
            problem = Problem("json", _describe(error, whole.text), byte)
            yield _unusable(line, (*whole.problems, problem), n_fields)
            continue
        first, *rest = (_json_field(text, line) for text in texts)
        yield Record((first._replace(problems=(*whole.problems, *first.problems)), *rest), line.content, keys)


def parse_object(text: str) -> dict[str, object]:
    """Parse one JSON object; ValueError for anything else, a key given twice, or too deep nesting."""
    try:
        row = json.loads(text, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError(f"a JSON object was expected, not {type(row).__name__}")
    return row


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' occurs twice in one object")
    return row


def _json_field(text: str, line: Line) -> Field:
    """Make a field. JSON can spell half a surrogate pair (\\ud800), which UTF-8 cannot encode: that is a problem."""
    if text.isascii():
        return Field(text, line.number, line.byte)
    try:
        text.encode()
    except UnicodeEncodeError:
        problem = Problem("encoding", f"half of a surrogate pair in “{excerpt(text)}”")
        return Field("", line.number, line.byte, (problem,))
    return Field(text, line.number, line.byte)


def _unusable(line: Line, problems: tuple[Problem, ...], n_fields: int) -> Record:
    fields = [Field("", line.number, line.byte, problems if side == 0 else ()) for side in range(n_fields)]
    return Record(tuple(fields), line.content)


def _describe(error: ValueError, text: str) -> str:
    what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{what}: “{excerpt(text, 40)}”"


# Parquet


def parquet_records(path: Path, *, content: Content, languages: tuple[str, str] | None) -> Iterator[Record]:
    """Read the columns of the texts batch by batch with pyarrow; null is an empty text."""
    file = open_parquet(path)
    keys = find_parquet_keys(path, file, content=content, languages=languages)
    columns = [keys.inside] if keys.inside else list(keys.names)
    number = 0
    try:
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=columns):
            for row in batch.to_pylist():
                number += 1
                texts = _parquet_texts(keys, row, _row(path, number))
                yield Record(tuple(Field(text, number) for text in texts), keys=keys)
    except (OSError, ValueError) as error:  # the base classes of pyarrow's errors
        raise BadData("damaged", _row(path, number + 1), str(error).splitlines()[0]) from None


def _parquet_texts(keys: JsonKeys, row: dict[str, object], place: Location) -> list[str]:
    """Return the texts of a row. A value that is not a text does not mean that the file is damaged."""
    try:
        return keys.texts(row)
    except ValueError as error:
        raise BadData("column-type", place, str(error)) from None


def open_parquet(path: Path) -> Any:
    """Open a Parquet file; raise an error if pyarrow or the file is missing, or if the file is damaged."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Reading Parquet", "parquet") from None
    if plain_name(path) != path.name:
        raise UserError(f"{path}: Parquet files are compressed already; unpack the {path.suffix} first")
    open_bytes(path).close()  # raises the usual errors for a folder and a missing file
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise BadData(
            "damaged", Location(str(path)), f"not a readable Parquet file: {str(error).splitlines()[0]}"
        ) from None


def find_parquet_keys(path: Path, file: Any, *, content: Content, languages: tuple[str, str] | None) -> JsonKeys:
    """Find the columns of the texts in the schema of an open Parquet file."""
    schema = file.schema_arrow
    example = {column.name: {child.name: "" for child in _children(column)} or "" for column in schema}
    try:
        return find_keys(example, content, languages)
    except ValueError as error:
        raise BadData("json", Location(str(path)), str(error), remedy="Rename the columns, or choose two.") from None


def _children(column: Any) -> list[Any]:
    """List the fields of a struct column."""
    return [column.type.field(i) for i in range(column.type.num_fields)]


def _row(path: Path, number: int) -> Location:
    return Location(str(path), number, unit="row")
