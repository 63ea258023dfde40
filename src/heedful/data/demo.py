"""The built-in demo corpus: sentences of daily life in English, French and Chinese, with all right translations.

A grammar generated the tables (`scripts/demo_corpus` in heedful's repository), so all right translations of a sentence
are known: they are its accepted translations.

>>> corpus = demo_corpus("en", "fr")
>>> [len(split) for split in (corpus.train, corpus.valid, corpus.test, corpus.combinations)]
[32829, 500, 1000, 730]
"""

import lzma
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import invalid_choice

FOLDER = Path(__file__).parent / "demo_corpus"
PAIRS = ("en-fr", "fr-en", "en-zh", "zh-en")
SPLITS = ("train", "valid", "test", "combinations", "probe")
COLUMNS = (
    *("split", "source", "target", "accepted", "tense", "polarity", "question", "clauses"),
    *("probe", "pair", "antecedent", "pronoun"),
)
SEPARATOR = " | "  # between the translations in the column "accepted", which has all but the target


@dataclass(frozen=True, slots=True)
class DemoExample:
    """A source sentence with its translations and its kind; the last four fields are of the split `probe`."""

    source: str
    target: str
    accepted: tuple[str, ...]  # every translation that counts as right, the target first
    tense: str  # present, progressive, past, future or imperative; "" for a set phrase such as "Thanks."
    polarity: str  # affirmative, negative or never; "" for a set phrase
    question: str  # what is asked: yes-no, where, what, when, who, why, how many, …; "" if it is no question
    clauses: int  # 2 if "because", "but" or "and" joins two clauses; 0 for a set phrase
    probe: str = ""  # antecedent or roles
    pair: int = 0  # the two sentences of a pair have the same number, from 1
    antecedent: str = ""  # the noun of the source that the pronoun stands for
    pronoun: str = ""  # the pronoun that a right translation has for it


@dataclass(frozen=True)
class DemoCorpus:
    """The examples of one direction, in training order. No source sentence is in two splits."""

    train: list[DemoExample]
    valid: list[DemoExample]
    test: list[DemoExample]
    combinations: list[DemoExample]  # two words of each occur in `train`, but never in one sentence
    probe: list[DemoExample]  # pairs that differ in the antecedent of a pronoun, or in who does what to whom


def demo_corpus(source_language: str, target_language: str) -> DemoCorpus:
    """Read the corpus of one direction; `PAIRS` lists the directions.

    >>> example = demo_corpus("en", "fr").probe[0]
    >>> example.source, example.antecedent, example.pronoun
    ("The cow didn't cross the bridge because it was too tired.", 'cow', 'elle')
    """
    pair = f"{source_language}-{target_language}"
    if pair not in PAIRS:
        raise invalid_choice("languages of the demo corpus", pair, PAIRS)
    splits: dict[str, list[DemoExample]] = defaultdict(list)
    for row in _read_rows(FOLDER / f"{pair}.tsv.xz"):
        splits[row["split"]].append(_example(row))
    return DemoCorpus(**{name: splits[name] for name in SPLITS})


def _read_rows(path: Path) -> Iterator[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        header = next(lines).rstrip("\n").split("\t")
        for line in lines:
            yield dict(zip(header, line.rstrip("\n").split("\t"), strict=True))


def _example(row: dict[str, str]) -> DemoExample:
    others = row["accepted"].split(SEPARATOR) if row["accepted"] else []
    return DemoExample(
        source=row["source"],
        target=row["target"],
        accepted=(row["target"], *others),
        tense=row["tense"],
        polarity=row["polarity"],
        question=row["question"],
        clauses=int(row["clauses"]),
        probe=row["probe"],
        pair=int(row["pair"] or 0),
        antecedent=row["antecedent"],
        pronoun=row["pronoun"],
    )
