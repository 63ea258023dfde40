"""One JSON object a line: {"translation": {"en": …, "de": …}}, {"source", "target"}, {"text", "label"} or {"text"}."""

import json
from collections.abc import Iterator
from pathlib import Path

from heedful.data.fields import Content, Fields, find_fields
from heedful.data.findings import Problem, shown
from heedful.data.lines import Line, read_lines
from heedful.data.records import Cell, Record, decode


def jsonl_records(
    path: Path, *, content: Content, languages: tuple[str, str] | None, max_bytes: int
) -> Iterator[Record]:
    """Every non-blank line as a record; the keys are settled by the first object that has them."""
    fields: Fields | None = None
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


def _cell(text: str, line: Line) -> Cell:
    """JSON can spell half a surrogate pair (\\ud800), which no UTF-8 file can hold."""
    if text.isascii():
        return Cell(text, line.number, line.byte)
    try:
        text.encode()
    except UnicodeEncodeError:
        return Cell("", line.number, line.byte, (Problem("encoding", f"half of a surrogate pair in “{shown(text)}”"),))
    return Cell(text, line.number, line.byte)


def _failed(line: Line, problems: tuple[Problem, ...], n_cells: int) -> Record:
    cells = [Cell("", line.number, line.byte, problems if side == 0 else ()) for side in range(n_cells)]
    return Record(tuple(cells), line.content)


def _say(error: ValueError, text: str) -> str:
    what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{what}: “{shown(text, 40)}”"
