"""Choose, for each sentence, the translation that several systems agree with most, and score the choice.

    python benchmarks/quality/consensus.py --data FOLDER --archive docs/results/multi30k/translations.tsv.xz
        --systems 'multi30k-en-de-[123]' 'multi30k-en-de-small-[123]' [--family 'multi30k-en-de-diverse-[456]']
        [--pair en-de] [--metric bleu] [--back RUN] [--beam 5] --keep build/consensus

This is minimum Bayes risk decoding over the outputs of several models; no reference is used to choose. FOLDER holds
the corpus as benchmarks/quality/multi30k.py expects it. With --archive, --systems and --family name systems of the
archive (with * ? [] as in file names); without it, they name folders that `multi30k.py --keep` wrote. Each system has
one vote. The systems of a --family share one vote, because models that started from the same weights make the same
mistakes. --metric sets how the similarity of two translations is measured (BLEU or chrF); without it, the metric with
the best BLEU on validation is used. Each test set is then scored once.

--back names a model of the opposite direction. The log-probability of the source given the candidate, and the number
of words in the candidate (both measures favour short candidates), then count as well. Their weights are chosen by BLEU
on validation from the values in WEIGHTS.
"""

import argparse
import fnmatch
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.evaluation.mbr import METRICS, Metric, expected_utility
from heedful.evaluation.metrics import bleu
from multi30k import Corpus, score_file
from translations import Archive, read_archive, read_lines, write_lines

# Candidate weights of the terms besides similarity (0 to 100): per nat of log-probability, and per word.
WEIGHTS = {"back": (0.0, 0.5, 1.0, 2.0), "words": (0.0, 0.5, 1.0)}


class Rule(NamedTuple):
    """How a translation is chosen: the metric for similarity, and the weights of the other terms."""

    metric: Metric
    back: float = 0.0
    words: float = 0.0


class Candidate(NamedTuple):
    """A translation of one sentence, with what the rules weigh."""

    text: str
    similarity: dict[Metric, float]  # to the translations of all systems, 0 to 100, by metric
    back: float  # log-probability of the source given this text

    def score(self, rule: Rule) -> float:
        return self.similarity[rule.metric] + rule.back * self.back + rule.words * len(self.text.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus")
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--archive", type=Path, help="read translations from this archive instead of from folders")
    parser.add_argument("--systems", nargs="+", required=True, help="systems with one vote each")
    parser.add_argument("--family", nargs="+", action="append", default=[], help="systems that share one vote")
    parser.add_argument("--metric", choices=METRICS, help="similarity metric (default: chosen on validation)")
    parser.add_argument("--back", type=Path, help="run or model folder of the opposite direction")
    parser.add_argument("--beam", type=int, default=5, help="which translations to use")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the chosen translations and their scores")
    options = parser.parse_args()
    corpus = Corpus(options.data, *options.pair.split("-"))
    archive = read_archive(options.archive) if options.archive else None
    votes = votes_of(options, archive)
    options.keep.mkdir(parents=True, exist_ok=True)

    rules = rules_to_try(options)
    splits = ("val", *corpus.tests())
    candidates = {split: candidates_of(options, corpus, split, votes, archive) for split in splits}
    references = read_lines(corpus.find("val", corpus.target))
    validation = {
        rule: bleu(choose(candidates["val"], rule), [references], tokenize=corpus.tokenize).value for rule in rules
    }
    best = max(rules, key=lambda rule: validation[rule])
    scores = {split: write_and_score(options, corpus, split, choose(candidates[split], best)) for split in splits}

    summary = {
        "systems": {Path(system).name: vote for system, vote in votes.items()},
        "validation": [{**rule._asdict(), "bleu": value} for rule, value in validation.items()],
        "chosen": best._asdict(),
    }
    for split, (bleu_score, chrf_score) in scores.items():
        print(f"{len(votes)} systems, {split}: BLEU {bleu_score['value']:.2f}, chrF2 {chrf_score['value']:.2f}")
    print(json.dumps(summary["chosen"]))
    (options.keep / "scores.json").write_text(
        json.dumps({**summary, "scores": scores}, indent=1) + "\n", encoding="utf-8"
    )


def votes_of(options: argparse.Namespace, archive: Archive | None) -> dict[str, float]:
    """Return the vote of each system: 1, or an equal share of 1 for the members of a family."""
    votes = dict.fromkeys(expand(options.systems, archive), 1.0)
    for family in options.family:
        members = expand(family, archive)
        votes |= dict.fromkeys(members, 1 / len(members))
    return votes


def expand(patterns: Sequence[str], archive: Archive | None) -> list[str]:
    """Return the archive's systems that match the patterns; without an archive, the patterns are folder names."""
    if archive is None:
        return list(patterns)
    names = list(next(iter(archive.values())))
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            sys.exit(f"--archive has no system {pattern!r}; it has: {', '.join(names)}")
    return [name for pattern in patterns for name in fnmatch.filter(names, pattern)]


def rules_to_try(options: argparse.Namespace) -> list[Rule]:
    """List the rules that validation decides between."""
    metrics: Sequence[Metric] = [options.metric] if options.metric else METRICS
    if options.back is None:
        return [Rule(metric) for metric in metrics]
    return [Rule(metric, *weights) for metric in metrics for weights in itertools.product(*WEIGHTS.values())]


def candidates_of(
    options: argparse.Namespace, corpus: Corpus, split: str, votes: Mapping[str, float], archive: Archive | None
) -> list[list[Candidate]]:
    """Return the distinct translations of each sentence by all systems."""
    name = file_name(options, corpus, split)
    outputs = [archive[name][system] if archive else read_lines(Path(system) / name) for system in votes]
    similarity = {
        metric: expected_utility(outputs, metric=metric, tokenize=corpus.tokenize, votes=list(votes.values()))
        for metric in METRICS
    }
    texts = [list(translations) for translations in similarity[METRICS[0]]]
    back = backward_scores(options.back, texts, read_lines(corpus.find(split, corpus.source)))
    return [
        [Candidate(text, {metric: similarity[metric][i][text] for metric in METRICS}, next(back)) for text in row]
        for i, row in enumerate(texts)
    ]


def backward_scores(model: Path | None, texts: list[list[str]], sources: list[str]) -> Iterator[float]:
    """Yield the log-probability of the source for every candidate, in order; without a model, zeros."""
    if model is None:
        return itertools.repeat(0.0)
    from heedful.evaluation.perplexity import likelihood
    from heedful.models.model_info import find_model_folder
    from heedful.models.model_io import load_model

    loaded = load_model(find_model_folder(model))
    loaded.model.eval()
    candidates = [text for row in texts for text in row]
    repeated_sources = [source for row, source in zip(texts, sources, strict=True) for _ in row]
    return iter(likelihood(loaded.model, loaded.tokenizers, candidates, repeated_sources).log_probs)


def choose(candidates: list[list[Candidate]], rule: Rule) -> list[str]:
    """Return the best candidate of each sentence."""
    return [max(row, key=lambda candidate: candidate.score(rule)).text for row in candidates]


def write_and_score(
    options: argparse.Namespace, corpus: Corpus, split: str, translations: list[str]
) -> list[dict[str, Any]]:
    """Write the chosen translations into the --keep folder and return their BLEU and chrF."""
    output = options.keep / file_name(options, corpus, split)
    write_lines(output, translations)
    return score_file(output, corpus, split)


def file_name(options: argparse.Namespace, corpus: Corpus, split: str) -> str:
    return f"{split}.beam{options.beam}.{corpus.target}"


if __name__ == "__main__":
    main()
