"""Words with a tag each, in columns, one word a line, a blank line after each sentence (CoNLL's way)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from heedful.data.corpus import Corpus, Example
from heedful.errors import UserError

DOCUMENT = "-DOCSTART-"  # CoNLL-2003 marks the beginning of a document like a word


@dataclass(frozen=True)
class Sentence:
    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int = field(default=0, compare=False)  # where it begins in its file


def read_tagged(corpus: Corpus, columns: tuple[int, int] = (1, -1)) -> Iterator[Sentence]:
    """The sentences of a file whose lines are `corpus`; `columns` say where the word and its tag stand.

    Columns are counted from 1, or from -1 at the end. Where neither is the first, that one holds the number of the
    word, as in CoNLL-U: lines that begin with # are then remarks, and those numbered "3-4" or "3.1" are no words.
    """
    words: list[str] = []
    tags: list[str] = []
    begin = 0
    for line in corpus:
        fields = line.source.split("\t") if "\t" in line.source else line.source.split()
        if not fields or not any(field.strip() for field in fields):
            if words:
                yield Sentence(tuple(words), tuple(tags), begin)
            words, tags = [], []
            continue
        numbered = not {0, 1, -len(fields)} & set(columns)
        if fields[0] == DOCUMENT or (numbered and (fields[0].startswith("#") or not fields[0].isdigit())):
            continue
        begin = begin if words else line.line
        words.append(_column(fields, columns[0], corpus, line))
        tags.append(_column(fields, columns[1], corpus, line))
    if words:
        yield Sentence(tuple(words), tuple(tags), begin)


def _column(fields: Sequence[str], column: int, corpus: Corpus, line: Example) -> str:
    if column == 0 or abs(column) > len(fields) or len(fields) < 2:
        found = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
        wanted = f"data.columns asks for number {column}" if len(fields) > 1 else "a word and its tag are expected"
        raise UserError(f"{corpus.place(line)}: {found} ({line.source[:80]!r}), where {wanted}")
    return fields[column - 1 if column > 0 else column]


def spans_of(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """(begin, end, name) of each stretch in tags like B-PER I-PER O; a stretch may also begin with I.

    S, E of other corpora, U and L of others again, mark a stretch of one word and the last word of a longer one.
    """
    spans: set[tuple[int, int, str]] = set()
    begin, name = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        kind, _, own = tag.partition("-")
        if name and (kind in ("B", "S", "U", "O") or own != name):
            spans.add((begin, place, name))
            name = ""
        if not name and own and kind in ("B", "I", "S", "E", "U", "L"):
            begin, name = place, own
    return spans
