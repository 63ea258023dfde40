"""Records back into files of the format they came from, for `--fix`."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from xml.sax.saxutils import escape, quoteattr

from heedful.data.corpus import Corpus
from heedful.data.jsonl import parse
from heedful.data.parquet import ROWS, find_parquet_fields, open_parquet
from heedful.data.records import Record
from heedful.data.tmx import tmx_languages

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
