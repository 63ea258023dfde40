"""The sets of benchmarks/quality/family.py as plain files: text, text TAB label, source TAB target."""

import csv
import gzip
import lzma
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

Pairs = list[tuple[str, str]]
POLARITY = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}  # 2, neutral, is left out


def write_all(shared: Path, folder: Path) -> list[tuple[Path, int]]:
    """Every file, and how many lines it has."""
    folder.mkdir(parents=True, exist_ok=True)
    reviews = sst(shared / "classify" / "sst5.train.txt.xz")
    questions, asked = divided(trec(shared), 500)
    made = {
        **dict(zip(("sst.train.tsv", "sst.valid.tsv"), divided(reviews, 300), strict=True)),
        "sst.test.tsv": sst(shared / "classify" / "sst5.dev.txt.xz"),
        **dict(zip(("trec.train.tsv", "trec.valid.tsv"), divided(questions, 300), strict=True)),
        "trec.test.tsv": asked,
        **dict(zip(("summarise.train.tsv", "summarise.test.tsv"), divided(summaries(shared), 500), strict=True)),
    }
    for split in ("simple", "length"):
        for part in ("train", "test"):
            made[f"scan.{split}.{part}.tsv"] = scan(shared / "scan" / f"{split}.{part}.txt.xz")
    written = [(folder / name, write_pairs(folder / name, pairs)) for name, pairs in made.items()]
    tested = {beginning(text) for name, pairs in made.items() if "train" not in name for text, _ in pairs}
    for name, texts in (("english.txt", english(shared, made)), ("paragraphs.txt", paragraphs(made))):
        kept = [text for text in texts if beginning(text) not in tested]  # what is tested on is never read before
        (folder / name).write_text("".join(f"{text}\n" for text in kept), encoding="utf-8")
        written.append((folder / name, len(kept)))
    return written


def sst(path: Path) -> Pairs:
    rows = (line.split(" ||| ", 1) for line in lines(path))
    return [(text, POLARITY[label]) for label, text in rows if label in POLARITY]


def trec(shared: Path) -> Pairs:
    rows = (line.split(" ", 1) for line in lines(shared / "classify" / "trec_questions.txt.xz"))
    return [(text, label.split(":")[0]) for label, text in rows]


def summaries(shared: Path) -> Pairs:
    rows = (line.split("\t") for line in lines(shared / "summarise" / "summarise_en.tsv.xz"))
    return [(row[0], row[1]) for row in rows if len(row) == 2 and row[0] and row[1]]


def scan(path: Path) -> Pairs:
    rows = (line.removeprefix("IN: ").split(" OUT: ") for line in lines(path))
    return [(command, actions) for command, actions in rows]


def english(shared: Path, made: dict[str, Pairs]) -> Iterator[str]:
    """Text without labels: captions, sentences, articles, descriptions, and the texts of the two training sets."""
    yield from lines(shared / "multi30k" / "raw" / "train.en.gz")
    seen: set[str] = set()
    for line in lines(shared / "tatoeba" / "eng-fra.train.tsv.xz"):
        text = line.split("\t")[0]
        if text not in seen:
            seen.add(text)
            yield text
    for part in ("valid", "test"):
        articles = lines(shared / "lm" / f"wikitext-2-raw.{part}.txt.xz")
        yield from (line.strip() for line in articles if line.strip() and not line.strip().startswith("="))
    with lzma.open(shared / "classify" / "ag_news.test7600.csv.xz", "rt", encoding="utf8", newline="") as file:
        yield from (" ".join(cell for cell in row if len(cell) > 2) for row in csv.reader(file))
    for name in ("summarise.train.tsv", "sst.train.tsv", "trec.train.tsv"):
        yield from (text for text, _ in made[name])


def paragraphs(made: dict[str, Pairs]) -> Iterator[str]:
    """What T5 and BART read before they summarise: the paragraphs of the training pairs, without the summaries."""
    return (text for text, _ in made["summarise.train.tsv"])


def divided(pairs: Pairs, n_test: int) -> tuple[Pairs, Pairs]:
    """All but n_test, and those: drawn with a fixed seed. No beginning of a source is in both: news are told twice."""
    sources = sorted({beginning(source) for source, _ in pairs})
    chosen = set(random.Random(0).sample(sources, n_test))
    of_chosen = {beginning(source): (source, target) for source, target in pairs if beginning(source) in chosen}
    return [pair for pair in pairs if beginning(pair[0]) not in chosen], list(of_chosen.values())


def beginning(text: str) -> str:
    """Its first sixty letters and digits, in lower case."""
    return "".join(character for character in text.lower() if character.isalnum())[:60]


def lines(path: Path) -> Iterator[str]:
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
    """A file with n of the pairs, as many of each label as there are in all, or nearly; n = 0: the file itself."""
    pairs = read_pairs(path)
    if not n or n >= len(pairs):
        return path
    by_label: dict[str, Pairs] = {}
    for pair in random.Random(seed).sample(pairs, len(pairs)):
        by_label.setdefault(pair[1], []).append(pair)
    turns = [group[i] for i in range(len(pairs)) for group in by_label.values() if i < len(group) * n / len(pairs) + 1]
    some = path.with_name(f"{path.stem}.{n}-{seed}.tsv")
    write_pairs(some, turns[:n])
    return some
