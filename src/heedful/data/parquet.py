"""Parquet through pyarrow, batch by batch, only the columns that hold the texts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.data.fields import Content, Fields, find_fields
from heedful.data.findings import BadData, Place
from heedful.data.lines import open_bytes, plain_name
from heedful.data.records import Cell, Record
from heedful.errors import MissingExtra, UserError

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
                yield Record(tuple(Cell(text, number) for text in _texts(fields, row, _row(path, number))))
    except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses of these
        raise BadData("damaged", _row(path, number + 1), str(error).splitlines()[0]) from None


def _texts(fields: Fields, row: dict[str, object], place: Place) -> list[str]:
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
