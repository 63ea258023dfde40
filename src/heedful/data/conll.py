"""Read words with tags in columns (the CoNLL format): one word per line, a blank line after each sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from heedful.data.corpus import Corpus, Example
from heedful.errors import UserError

DOCUMENT = "-DOCSTART-"  # in CoNLL-2003, a line that marks the beginning of a document


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, and the tag of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int = field(default=0, compare=False)  # where it begins in its file


def read_tagged(corpus: Corpus, columns: tuple[int, int] = (1, -1)) -> Iterator[Sentence]:
    """Read sentences from running text; `columns` are those of the word and of its tag.

    Columns are counted from 1, or backwards from -1. If the first column is neither of them, it has the number of the
    word, as in CoNLL-U: then lines that begin with # are comments, and "3-4" or "3.1" number no words.
    """
    words: list[str] = []
    tags: list[str] = []
    begin = 0
    for line in corpus:
        cells = line.source.split("\t") if "\t" in line.source else line.source.split()
        if not any(cell.strip() for cell in cells):
            if words:
                yield Sentence(tuple(words), tuple(tags), begin)
            words, tags = [], []
            continue
        numbered = not {0, 1, -len(cells)} & set(columns)
        if cells[0] == DOCUMENT or (numbered and (cells[0].startswith("#") or not cells[0].isdigit())):
            continue
        begin = begin if words else line.line
        words.append(_column(cells, columns[0], corpus, line))
        tags.append(_column(cells, columns[1], corpus, line))
    if words:
        yield Sentence(tuple(words), tuple(tags), begin)


def _column(cells: Sequence[str], column: int, corpus: Corpus, line: Example) -> str:
    if column == 0 or abs(column) > len(cells) or len(cells) < 2:
        actual = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
        expected = f"data.columns names column {column}" if len(cells) > 1 else "a word and its tag are expected"
        raise UserError(f"{corpus.place(line)}: {actual} ({line.source[:80]!r}), but {expected}")
    return cells[column - 1 if column > 0 else column]


def spans_of(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Find the spans in BIO tags: (begin, end, name) each. A span may also begin with I.

    The schemes with S, E or U, L for single words and last words are understood as well.

    >>> sorted(spans_of(["B-PER", "I-PER", "O", "B-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    """
    spans: set[tuple[int, int, str]] = set()
    begin, name = 0, ""
    for i, tag in enumerate([*tags, "O"]):
        kind, _, label = tag.partition("-")
        if name and (kind in ("B", "S", "U", "O") or label != name):
            spans.add((begin, i, name))
            name = ""
        if not name and label and kind in ("B", "I", "S", "E", "U", "L"):
            begin, name = i, label
    return spans
