"""Which keys of an object hold the texts: one search for JSONL and for Parquet.

Lines into records: two aligned files, TSV, plain text. Nothing is skipped here and nothing raised for one bad line;
the readers and the check-up each decide for themselves what a problem means.

One JSON object a line: {"translation": {"en": …, "de": …}}, {"source", "target"}, {"text", "label"} or {"text"}.

Parquet through pyarrow, batch by batch, only the columns that hold the texts.

Where two files stop belonging together, guessed from nothing but the lengths of their lines.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.data.lines import Line, count_lines, is_pipe, open_bytes, plain_name, read_lines
from heedful.data.problems import BadData, Content, Place, Problem, excerpt
from heedful.errors import MissingExtra, UserError

HOW_TO_CHOOSE = 'heedful check --languages en,de; heedful train --set \'data.languages=["en","de"]\''


class JsonKeys(NamedTuple):
    """The two languages below "translation", or two keys side by side, or one."""

    names: tuple[str, ...]
    inside: str = ""  # the key of the object that holds them

    def of(self, row: Mapping[str, object]) -> list[str]:
        """The texts; ValueError says what is missing or no text."""
        holder: object = row
        if self.inside:
            holder = row.get(self.inside)
            if not isinstance(holder, Mapping):
                raise ValueError(f"no object below the key '{self.inside}'")
        assert isinstance(holder, Mapping)
        return [_text(holder, name) for name in self.names]

    def put(self, row: dict[str, object], texts: Sequence[str]) -> None:
        """Write `texts` back to where `of` found them."""
        holder = row[self.inside] if self.inside else row
        assert isinstance(holder, dict)
        holder.update(zip(self.names, texts, strict=True))


# Without languages given: the sets of keys that are looked for, in this order.
FLAT: dict[Content, tuple[tuple[str, ...], ...]] = {
    "pairs": (("source", "target"), ("src", "tgt")),
    "text": (("text",),),
    "labels": (("text", "label"),),
}


def find_fields(row: Mapping[str, object], content: Content, languages: tuple[str, str] | None) -> JsonKeys:
    """The fields of the first object; ValueError says which keys it has and which are needed."""
    inner = row.get("translation")
    if content == "pairs" and isinstance(inner, Mapping):
        if languages is None and len(inner) != 2:
            raise ValueError(f"choose two of its languages ({HOW_TO_CHOOSE}): {_list(inner)}")
        pair = languages or tuple(inner)
        _need(inner, pair)
        return JsonKeys(pair, inside="translation")
    if content == "pairs" and languages is not None and all(language in row for language in languages):
        return JsonKeys(languages)
    for names in FLAT[content]:
        if all(name in row for name in names):
            return JsonKeys(names)
    wanted = " and ".join(f"'{name}'" for name in FLAT[content][0])
    also = ""
    if content == "pairs":
        also = f" (or 'translation' with two languages, or two keys that are chosen: {HOW_TO_CHOOSE})"
    raise ValueError(f"needs {wanted}{also}; has only: {_list(row)}")


def _need(row: Mapping[str, object], names: Iterable[str]) -> None:
    for name in names:
        if name not in row:
            raise ValueError(f"no key '{name}'; the keys are: {_list(row)}")


def _text(row: Mapping[str, object], name: str) -> str:
    if name not in row:
        raise ValueError(f"no key '{name}'; the keys are: {_list(row)}")
    value = row[name]
    if isinstance(value, str):
        return value
    if value is None:  # Parquet and JSON both write null for "no translation": an empty side
        return ""
    if isinstance(value, int) and not isinstance(value, bool):  # labels are often numbers
        return str(value)
    raise ValueError(f"'{name}' is no text but {type(value).__name__}")


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    return (", ".join(listed[:12]) + (", …" if len(listed) > 12 else "")) or "nothing"


class Field(NamedTuple):
    """One side of one example, where it stands, and what the reader of its format found there."""

    text: str
    line: int
    byte: int | None = None
    problems: tuple[Problem, ...] = ()


class Record(NamedTuple):
    """One cell for plain text, two for pairs and for labelled text; `raw` is the line of a format with one file."""

    cells: tuple[Field, ...]
    raw: bytes = b""
    fields: JsonKeys | None = None  # of an object: where in it the texts stood


def text_records(path: Path, *, max_bytes: int) -> Iterator[Record]:
    for line in read_lines(path, max_bytes=max_bytes):
        yield Record((decode(line),))


def pair_records(source: Path, target: Path, *, max_bytes: int) -> Iterator[Record]:
    """Line n of one file with line n of the other; files of different length are refused where the shorter one ends,
    or before anything is read by `require_equal_counts`."""
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
    """Refuse the two files before one pair of them is used: from the missing line on, every pair would be wrong."""
    if not is_pipe(source) and not is_pipe(target):
        n_source, n_target = count_lines(source), count_lines(target)
        if n_source != n_target:
            raise _counts_differ(source, target, n_source, n_target)


def tsv_records(path: Path, *, columns: tuple[int, int] = (1, 2), max_bytes: int) -> Iterator[Record]:
    """Two of the columns, which are counted from 1; a quote is a character like any other.

    How many columns a line should have is what the first line has that is whole: a file may begin with a blank line.
    """
    needed, width, wide_line = max(columns), 0, 0
    for line in read_lines(path, max_bytes=max_bytes):
        whole = decode(line)
        parts = whole.text.split("\t")
        problems = whole.problems
        if not width and len(parts) >= needed and not any(problem.kind == "too-long" for problem in problems):
            width, wide_line = len(parts), line.number
        if len(parts) < needed:
            if whole.text and not whole.text.isspace():  # a blank line is an empty pair, as in two files
                value = f"{len(parts)} column{'s' * (len(parts) > 1)}, {needed} are needed: “{excerpt(whole.text)}”"
                problems = (*problems, Problem("columns", value))
            parts = [""] * needed
        elif width and len(parts) > width:
            problems = (*problems, Problem("extra-columns", f"{len(parts)} columns, line {wide_line} has {width}"))
        first, second = (Field(parts[column - 1], line.number, line.byte + _start(parts, column)) for column in columns)
        yield Record((first._replace(problems=problems) if problems else first, second), line.content)


def _start(parts: list[str], column: int) -> int:
    """Where a column begins, in bytes from the start of its line."""
    return sum(len(part.encode()) + 1 for part in parts[: column - 1])


def decode(line: Line) -> Field:
    """The line as text; what is not UTF-8 becomes an empty text with a problem that says which byte and why."""
    try:
        return Field(line.content.decode(), line.number, line.byte, line.problems)
    except UnicodeDecodeError as error:
        if any(problem.kind == "too-long" for problem in line.problems):  # its content was cut, perhaps mid-character
            return Field("", line.number, line.byte, line.problems)
        problem = Problem("encoding", _bad_byte(line.content, error), line.byte + error.start)
        return Field("", line.number, line.byte, (*line.problems, problem))


def _bad_byte(content: bytes, error: UnicodeDecodeError) -> str:
    first = content[error.start]
    around = content[max(0, error.start - 20) : error.start + 20].decode("utf-8", "backslashreplace")
    return f"invalid UTF-8 byte 0x{first:02X} in “{excerpt(around)}”. {_guess(content, error.start)}"


def _guess(content: bytes, start: int) -> str:
    """Which encoding it probably is, from the byte that UTF-8 cannot have there."""
    first, second = content[start], content[start + 1 : start + 2]
    if first in (0xC0, 0xC1) or (first in (0xE0, 0xF0) and second and second[0] < 0xA0):
        return "An overlong form, as Java and some old tools write"
    if first == 0xED and second and second[0] >= 0xA0:
        return "Half of a surrogate pair, as CESU-8 writes"
    high = sum(byte >= 0x80 for byte in content)
    if 0x80 <= first <= 0x9F:
        return "Probably Windows-1252"
    return "Probably Latin-1" if high * 4 <= len(content) else "Some other encoding, or not text"


def _counts_differ(source: Path, target: Path, n_source: int, n_target: int) -> BadData:
    value = f"{n_source:,} line{'s' * (n_source != 1)}, but {target} has {n_target:,}"

    shifted = first_shifted_line(source, target)
    if shifted is not None and shifted > min(n_source, n_target):
        value += f"; by the lengths of the lines, the first {shifted - 1:,} fit and the rest comes after them"
    elif shifted is not None:
        value += f"; by the lengths of the lines, they stop fitting at about line {shifted:,}"
    return BadData("counts", Place(str(source)), value)


def jsonl_records(
    path: Path, *, content: Content, languages: tuple[str, str] | None, max_bytes: int
) -> Iterator[Record]:
    """Every non-blank line as a record; the keys are settled by the first object that has them."""
    fields: JsonKeys | None = None
    n_cells = 1 if content == "text" else 2
    for line in read_lines(path, max_bytes=max_bytes):
        whole = decode(line)
        if any(problem.kind in ("encoding", "too-long") for problem in whole.problems):
            yield _failed(line, whole.problems, n_cells)
            continue
        if not whole.text or whole.text.isspace():
            yield _failed(line, (*whole.problems, Problem("blank")), n_cells)
            continue
        try:
            row = parse(whole.text)
            fields = fields or find_fields(row, content, languages)
            texts = fields.of(row)
        except ValueError as error:
            byte = (
                line.byte + len(whole.text[: error.pos].encode()) if isinstance(error, json.JSONDecodeError) else None
            )
            yield _failed(line, (*whole.problems, Problem("json", _say(error, whole.text), byte)), n_cells)
            continue
        first, *rest = (_cell(text, line) for text in texts)
        yield Record((first._replace(problems=(*whole.problems, *first.problems)), *rest), line.content, fields)


def parse(text: str) -> dict[str, object]:
    """One object; ValueError for anything else, a key given twice or a nesting that no record needs."""
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
        raise ValueError(f"the key '{twice}' stands twice in one object")
    return row


def _cell(text: str, line: Line) -> Field:
    """JSON can spell half a surrogate pair (\\ud800), which no UTF-8 file can hold."""
    if text.isascii():
        return Field(text, line.number, line.byte)
    try:
        text.encode()
    except UnicodeEncodeError:
        return Field(
            "", line.number, line.byte, (Problem("encoding", f"half of a surrogate pair in “{excerpt(text)}”"),)
        )
    return Field(text, line.number, line.byte)


def _failed(line: Line, problems: tuple[Problem, ...], n_cells: int) -> Record:
    cells = [Field("", line.number, line.byte, problems if side == 0 else ()) for side in range(n_cells)]
    return Record(tuple(cells), line.content)


def _say(error: ValueError, text: str) -> str:
    what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{what}: “{excerpt(text, 40)}”"


ROWS = 4096


def parquet_records(path: Path, *, content: Content, languages: tuple[str, str] | None) -> Iterator[Record]:
    """Row by row; a null is an empty text. The `line` of a cell is its row, from 1."""
    file = open_parquet(path)
    fields = find_parquet_fields(path, file, content=content, languages=languages)
    number = 0
    try:
        for batch in file.iter_batches(
            batch_size=ROWS, columns=[fields.inside] if fields.inside else list(fields.names)
        ):
            for row in batch.to_pylist():
                number += 1
                yield Record(tuple(Field(text, number) for text in _texts(fields, row, _row(path, number))))
    except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses of these
        raise BadData("damaged", _row(path, number + 1), str(error).splitlines()[0]) from None


def _texts(fields: JsonKeys, row: dict[str, object], place: Place) -> list[str]:
    """What `fields` finds; a value that is no text is no damage of the file."""
    try:
        return fields.of(row)
    except ValueError as error:
        raise BadData("column-type", place, str(error)) from None


def open_parquet(path: Path) -> Any:
    """The pyarrow file; a missing extra, a missing file and a damaged one each say so."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Reading Parquet", "parquet") from None
    if plain_name(path) != path.name:
        raise UserError(f"{path}: Parquet compresses by itself and is not read through {path.suffix}. Unpack it first")
    open_bytes(path).close()  # the same words as everywhere for a folder or a missing file
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise BadData("damaged", Place(str(path)), f"no readable Parquet file: {str(error).splitlines()[0]}") from None


def find_parquet_fields(path: Path, file: Any, *, content: Content, languages: tuple[str, str] | None) -> Any:
    schema = file.schema_arrow
    example = {field.name: {child.name: "" for child in _children(field)} or "" for field in schema}
    try:
        return find_fields(example, content, languages)
    except ValueError as error:
        raise BadData("json", Place(str(path)), str(error), remedy="Rename the columns, or choose two.") from None


def _children(field: Any) -> list[Any]:
    """The fields of a struct column."""
    return [field.type.field(i) for i in range(field.type.num_fields)]


def _row(path: Path, number: int) -> Place:
    return Place(str(path), number, unit="row")


MAX_SHIFT = 1000  # with more lines than this between them, one break is not what happened


def first_shifted_line(source: Path, target: Path) -> int | None:
    """The line from which the longer file runs ahead (n + 1 of the shorter when only its end is missing), or None.

    Translations are about as long as their sources. So before the break line i fits line i, after it line i + k, where
    k is how many lines one side has more; the break is where the sum of misfits is smallest. Files are read again.
    """
    if is_pipe(source) or is_pipe(target):
        return None
    lengths = [_lengths(path) for path in (source, target)]
    shorter, longer = sorted(lengths, key=len)
    shift = len(longer) - len(shorter)
    if len(shorter) < 20 or not 0 < shift <= MAX_SHIFT:
        return None
    n = len(shorter)
    usual = np.median(longer) - np.median(shorter)  # of logarithms: how much longer one language is written
    before = np.abs(longer[:n] - shorter - usual)
    after = np.abs(longer[shift:] - shorter - usual)
    sum_before, sum_after = (np.concatenate([[0.0], np.cumsum(misfit)]) for misfit in (before, after))
    misfits = sum_before + sum_after[-1] - sum_after  # [p]: lines up to p unshifted, the others shifted
    best = int(np.argmin(misfits))
    opposite = sum_after[best] + sum_before[-1] - sum_before[best]
    return best + 1 if misfits[best] < 0.8 * opposite else None


def _lengths(path: Path) -> npt.NDArray[np.float32]:
    sizes = np.fromiter((len(line.content) for line in read_lines(path)), dtype=np.float32)
    return np.log(sizes + 10)  # +10: among short lines a few letters more mean nothing
