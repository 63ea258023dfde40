"""What several systems agree on: for each sentence one of their translations is chosen, without a reference.

    python benchmarks/quality/consensus.py --data FOLDER --systems docs/results/multi30k/multi30k-en-de-[123] [--pair
        en-de]
        [--family docs/results/multi30k/multi30k-en-de-diverse-[456]] [--likeness bleu] [--back RUN] [--beam 5]
        [--keep docs/results/multi30k/multi30k-en-de-consensus]

FOLDER holds the corpus as for benchmarks/quality/multi30k.py, and each system is a folder that its --keep has left:
val and
test files as a beam translated them. Each has a vote; those of a --family, which began with the same weights and so err
together, are systems too and share one. How likeness is measured, by words (BLEU) or by characters (chrF), is chosen by
BLEU on validation, or named with --likeness; the test sets are then scored once, with that one.

With --back, a model of the other direction, it also counts how likely the source is as a translation of the candidate
(its log-probability), and how many words the candidate has, since that likelihood and that likeness like few. How many
points each is worth is chosen by BLEU on validation, too, of the few values in POINTS.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.evaluation.consensus import LIKENESSES, Likeness, agreement
from heedful.evaluation.scores import bleu
from multi30k import Corpus, lines_of, score_file

POINTS = {"back": (0.0, 0.5, 1.0, 2.0), "words": (0.0, 0.5, 1.0)}  # for a nat, for a word; likeness has up to 100


class How(NamedTuple):
    """To choose one of several translations: by its likeness to the others, and points for what else speaks for it."""

    likeness: Likeness
    back: float = 0.0
    words: float = 0.0


class Candidate(NamedTuple):
    text: str
    likeness: dict[Likeness, float]
    back: float  # the log-probability of the source, given this

    def points(self, how: How) -> float:
        return self.likeness[how.likeness] + how.back * self.back + how.words * len(self.text.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--systems", type=Path, nargs="+", required=True)
    parser.add_argument("--family", type=Path, nargs="+", action="append", default=[], help="systems with one vote")
    parser.add_argument("--likeness", choices=LIKENESSES, help="not to be chosen on validation")
    parser.add_argument("--back", type=Path, help="a run or model folder of the other direction")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--keep", type=Path, required=True, help="the folder for what was chosen, and its scores")
    options = parser.parse_args()
    options.votes = dict.fromkeys(options.systems, 1.0)
    options.votes |= {system: 1 / len(family) for family in options.family for system in family}
    corpus = Corpus(options.data, *options.pair.split("-"))
    options.keep.mkdir(parents=True, exist_ok=True)
    likenesses: Sequence[Likeness] = [options.likeness] if options.likeness else LIKENESSES
    ways = [How(likeness, *points) for likeness in likenesses for points in itertools.product(*POINTS.values())]
    if options.back is None:
        ways = [How(likeness) for likeness in likenesses]
    said = list(candidates(options, corpus, "val"))
    references = lines_of(corpus.find("val", corpus.target))
    judged = {how: bleu(chosen(said, how), [references], tokenize=corpus.tokenize).value for how in ways}
    best = max(ways, key=lambda how: judged[how])
    scores = {split: score(options, corpus, split, best) for split in ("val", *corpus.tests())}
    how = {
        "systems": {system.name: vote for system, vote in options.votes.items()},
        "validation": [{**way._asdict(), "bleu": value} for way, value in judged.items()],
        "chosen": best._asdict(),
    }
    for split, (by_words, by_characters) in scores.items():
        figures = f"BLEU {by_words['value']:.2f}, chrF2 {by_characters['value']:.2f}"
        print(f"{len(options.votes)} systems, {split}: {figures}")
    print(json.dumps(how["chosen"]))
    (options.keep / "scores.json").write_text(json.dumps({**how, "scores": scores}, indent=1) + "\n", encoding="utf-8")


def candidates(options: argparse.Namespace, corpus: Corpus, split: str) -> Iterator[list[Candidate]]:
    """For each line what the systems say, each once."""
    outputs = [lines_of(system / file_of(options, corpus, split)) for system in options.votes]
    votes = list(options.votes.values())
    likes = {one: agreement(outputs, likeness=one, tokenize=corpus.tokenize, votes=votes) for one in LIKENESSES}
    said = [list(of_line) for of_line in likes[LIKENESSES[0]]]
    back = iter(ways_back(options.back, said, lines_of(corpus.find(split, corpus.source))))
    for number, texts in enumerate(said):
        yield [Candidate(text, {one: likes[one][number][text] for one in LIKENESSES}, next(back)) for text in texts]


def ways_back(model: Path | None, said: list[list[str]], sources: list[str]) -> list[float]:
    """How likely the model finds the source of each candidate; without a model all are alike."""
    texts = [text for of_line in said for text in of_line]
    if model is None:
        return [0.0] * len(texts)
    from heedful.evaluation.perplexity import likelihood
    from heedful.models.find import find_model_folder
    from heedful.models.folder import load_model

    loaded = load_model(find_model_folder(model))
    loaded.model.eval()
    beside = [source for of_line, source in zip(said, sources, strict=True) for _ in of_line]
    return likelihood(loaded.model, loaded.tokenizers, texts, beside).log_probs


def chosen(said: list[list[Candidate]], how: How) -> list[str]:
    return [max(of_line, key=lambda candidate: candidate.points(how)).text for of_line in said]


def score(options: argparse.Namespace, corpus: Corpus, split: str, how: How) -> list[dict[str, Any]]:
    """BLEU and chrF of what is chosen, which is kept."""
    output = options.keep / file_of(options, corpus, split)
    lines = chosen(list(candidates(options, corpus, split)), how)
    output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return score_file(output, corpus, split)


def file_of(options: argparse.Namespace, corpus: Corpus, split: str) -> str:
    return f"{split}.beam{options.beam}.{corpus.target}"


if __name__ == "__main__":
    main()
