"""The tables that the package ships: one for each direction, tab-separated, compressed by xz.

`heedful.data.demo` reads them and explains their columns.
"""

import lzma
from collections.abc import Iterator
from pathlib import Path

from heedful.data.demo import COLUMNS, SEPARATOR
from scripts.demo_corpus.corpus import SEED, Example, accepted, demo_corpus, translations
from scripts.demo_corpus.kinds import kind_of
from scripts.demo_corpus.meaning import Language

# All settings of the compression are fixed, so that the same text always gives the same bytes.
FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 23},)


def write_table(path: Path, source: Language, target: Language, *, seed: int = SEED, scale: int = 1) -> int:
    """Write the table of one direction, and return how many rows it has."""
    lines = ["\t".join(COLUMNS), *table_lines(source, target, seed=seed, scale=scale)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress("".join(f"{line}\n" for line in lines)))
    return len(lines) - 1


def compress(text: str) -> bytes:
    """Compress a text with fixed settings."""
    return lzma.compress(text.encode(), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=FILTERS)


def table_lines(source: Language, target: Language, *, seed: int = SEED, scale: int = 1) -> Iterator[str]:
    """Yield the rows of a table without its heading: the splits one after the other, `train` in training order."""
    corpus = demo_corpus(source, target, seed=seed, scale=scale)
    splits = {
        "train": corpus.train,
        "valid": corpus.valid,
        "test": corpus.test,
        "combinations": corpus.combinations,
    }
    for split, examples in splits.items():
        for example in examples:
            right = translations(example.source, source, target, scale=scale)
            yield _row(split, example, right, ("", "", "", ""))
    for item in corpus.probe:
        right = accepted(item.example.meaning, source, target)
        yield _row("probe", item.example, right, (item.kind, str(item.number), item.antecedent, item.pronoun))


def _row(split: str, example: Example, right: frozenset[str], probe: tuple[str, str, str, str]) -> str:
    others = SEPARATOR.join(sorted(right - {example.target}))
    kind = kind_of(example.meaning)
    return "\t".join([split, example.source, example.target, others, *map(str, kind), *probe])
