"""Write the sets of benchmarks/quality/family.py as plain files: text, text TAB label, source TAB target."""

import csv
import gzip
import lzma
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

Pairs = list[tuple[str, str]]
POLARITY = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}  # 2, neutral, is left out


def write_all(shared: Path, folder: Path) -> list[tuple[Path, int]]:
    """Write all files; return their paths and numbers of lines."""
    folder.mkdir(parents=True, exist_ok=True)
    reviews = sst(shared / "classify" / "sst5.train.txt.xz")
    questions, test_questions = split_pairs(trec(shared), 500)
    sets = {
        **dict(zip(("sst.train.tsv", "sst.valid.tsv"), split_pairs(reviews, 300), strict=True)),
        "sst.test.tsv": sst(shared / "classify" / "sst5.dev.txt.xz"),
        **dict(zip(("trec.train.tsv", "trec.valid.tsv"), split_pairs(questions, 300), strict=True)),
        "trec.test.tsv": test_questions,
        **dict(zip(("summarise.train.tsv", "summarise.test.tsv"), split_pairs(summaries(shared), 500), strict=True)),
    }
    for split in ("simple", "length"):
        for part in ("train", "test"):
            sets[f"scan.{split}.{part}.tsv"] = scan(shared / "scan" / f"{split}.{part}.txt.xz")
    files = [(folder / name, write_pairs(folder / name, pairs)) for name, pairs in sets.items()]
    held_out = {beginning(text) for name, pairs in sets.items() if "train" not in name for text, _ in pairs}
    for name, texts in (("english.txt", english(shared, sets)), ("paragraphs.txt", paragraphs(sets))):
        training_texts = [text for text in texts if beginning(text) not in held_out]
        (folder / name).write_text("".join(f"{text}\n" for text in training_texts), encoding="utf-8")
        files.append((folder / name, len(training_texts)))
    return files


def sst(path: Path) -> Pairs:
    rows = (line.split(" ||| ", 1) for line in read_lines(path))
    return [(text, POLARITY[label]) for label, text in rows if label in POLARITY]


def trec(shared: Path) -> Pairs:
    rows = (line.split(" ", 1) for line in read_lines(shared / "classify" / "trec_questions.txt.xz"))
    return [(text, label.split(":")[0]) for label, text in rows]


def summaries(shared: Path) -> Pairs:
    rows = (line.split("\t") for line in read_lines(shared / "summarise" / "summarise_en.tsv.xz"))
    return [(row[0], row[1]) for row in rows if len(row) == 2 and row[0] and row[1]]


def scan(path: Path) -> Pairs:
    rows = (line.removeprefix("IN: ").split(" OUT: ") for line in read_lines(path))
    return [(command, actions) for command, actions in rows]


def english(shared: Path, sets: dict[str, Pairs]) -> Iterator[str]:
    """Yield text for pre-training: captions, sentences, articles, descriptions, and the texts of the training sets."""
    yield from read_lines(shared / "multi30k" / "raw" / "train.en.gz")
    seen: set[str] = set()
    for line in read_lines(shared / "tatoeba" / "eng-fra.train.tsv.xz"):
        text = line.split("\t")[0]
        if text not in seen:
            seen.add(text)
            yield text
    for part in ("valid", "test"):
        articles = read_lines(shared / "lm" / f"wikitext-2-raw.{part}.txt.xz")
        yield from (line.strip() for line in articles if line.strip() and not line.strip().startswith("="))
    with lzma.open(shared / "classify" / "ag_news.test7600.csv.xz", "rt", encoding="utf8", newline="") as file:
        yield from (" ".join(cell for cell in row if len(cell) > 2) for row in csv.reader(file))
    for name in ("summarise.train.tsv", "sst.train.tsv", "trec.train.tsv"):
        yield from (text for text, _ in sets[name])


def paragraphs(sets: dict[str, Pairs]) -> Iterator[str]:
    """Return text for pre-training T5 and BART: the paragraphs of the training pairs without their summaries."""
    return (text for text, _ in sets["summarise.train.tsv"])


def split_pairs(pairs: Pairs, n_test: int) -> tuple[Pairs, Pairs]:
    """Split pairs at random, with a fixed seed, into the others and `n_test` test pairs.

    Sources that begin alike stay on one side, because a text often occurs twice with small changes.
    """
    sources = sorted({beginning(source) for source, _ in pairs})
    test = set(random.Random(0).sample(sources, n_test))
    test_pairs = {beginning(source): (source, target) for source, target in pairs if beginning(source) in test}
    return [pair for pair in pairs if beginning(pair[0]) not in test], list(test_pairs.values())


def beginning(text: str) -> str:
    """Return the first sixty letters and digits of a text in lower case."""
    return "".join(character for character in text.lower() if character.isalnum())[:60]


def read_lines(path: Path) -> Iterator[str]:
    opener = {".xz": lzma.open, ".gz": gzip.open}[path.suffix]
    with opener(path, "rt", encoding="utf8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> int:
    texts = [f"{' '.join(source.split())}\t{' '.join(target.split())}\n" for source, target in pairs]
    path.write_text("".join(texts), encoding="utf-8")
    return len(texts)


def read_pairs(path: Path) -> Pairs:
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line)
    return [(source, target) for source, target in rows]


def write_some(path: Path, n: int, seed: int) -> Path:
    """Write a file with `n` of the pairs, the labels in proportion, and return it; n = 0 returns the file itself."""
    pairs = read_pairs(path)
    if not n or n >= len(pairs):
        return path
    by_label: dict[str, Pairs] = {}
    for pair in random.Random(seed).sample(pairs, len(pairs)):
        by_label.setdefault(pair[1], []).append(pair)
    in_turns = [
        group[i] for i in range(len(pairs)) for group in by_label.values() if i < len(group) * n / len(pairs) + 1
    ]
    output = path.with_name(f"{path.stem}.{n}-{seed}.tsv")
    write_pairs(output, in_turns[:n])
    return output
