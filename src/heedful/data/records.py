"""Lines into records: two aligned files, TSV, plain text. Nothing is skipped here and nothing raised for one bad line;
the readers and the check-up each decide for themselves what a problem means."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from heedful.data.fields import Fields
from heedful.data.findings import BadData, Place, Problem, shown
from heedful.data.lines import Line, count_lines, is_pipe, read_lines


class Cell(NamedTuple):
    """One side of one example, where it stands, and what the reader of its format found there."""

    text: str
    line: int
    byte: int | None = None
    problems: tuple[Problem, ...] = ()


class Record(NamedTuple):
    """One cell for plain text, two for pairs and for labelled text; `raw` is the line of a format with one file."""

    cells: tuple[Cell, ...]
    raw: bytes = b""
    fields: Fields | None = None  # of an object: where in it the texts stood


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
                value = f"{len(parts)} column{'s' * (len(parts) > 1)}, {needed} are needed: “{shown(whole.text)}”"
                problems = (*problems, Problem("columns", value))
            parts = [""] * needed
        elif width and len(parts) > width:
            problems = (*problems, Problem("extra-columns", f"{len(parts)} columns, line {wide_line} has {width}"))
        first, second = (Cell(parts[column - 1], line.number, line.byte + _start(parts, column)) for column in columns)
        yield Record((first._replace(problems=problems) if problems else first, second), line.content)


def _start(parts: list[str], column: int) -> int:
    """Where a column begins, in bytes from the start of its line."""
    return sum(len(part.encode()) + 1 for part in parts[: column - 1])


def decode(line: Line) -> Cell:
    """The line as text; what is not UTF-8 becomes an empty text with a problem that says which byte and why."""
    try:
        return Cell(line.content.decode(), line.number, line.byte, line.problems)
    except UnicodeDecodeError as error:
        if any(problem.kind == "too-long" for problem in line.problems):  # its content was cut, perhaps mid-character
            return Cell("", line.number, line.byte, line.problems)
        problem = Problem("encoding", _bad_byte(line.content, error), line.byte + error.start)
        return Cell("", line.number, line.byte, (*line.problems, problem))


def _bad_byte(content: bytes, error: UnicodeDecodeError) -> str:
    first = content[error.start]
    around = content[max(0, error.start - 20) : error.start + 20].decode("utf-8", "backslashreplace")
    return f"invalid UTF-8 byte 0x{first:02X} in “{shown(around)}”. {_guess(content, error.start)}"


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
    from heedful.data.alignment import first_shifted_line  # NumPy: a tenth of a second, for an error alone

    shifted = first_shifted_line(source, target)
    if shifted is not None and shifted > min(n_source, n_target):
        value += f"; by the lengths of the lines, the first {shifted - 1:,} fit and the rest comes after them"
    elif shifted is not None:
        value += f"; by the lengths of the lines, they stop fitting at about line {shifted:,}"
    return BadData("counts", Place(str(source)), value)
