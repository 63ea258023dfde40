"""Translations in, all that can be said of them out: scores, how sure they are, what differs, what is worst."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.evaluation.counts import Counts, Tokenize, count_bleu, count_chrf
from heedful.evaluation.notes import notes_on
from heedful.evaluation.resampling import RESAMPLES, SEED, Comparison, compare, intervals
from heedful.evaluation.scores import Score


@dataclass(frozen=True)
class SentenceScores:
    """One number for each sentence, 0 to 100, cased."""

    bleu: list[float]
    chrf: list[float]

    def worst(self, n: int) -> list[int]:
        """The numbers of the n sentences of lowest chrF, the worst first; of two alike the lower BLEU, then the first.

        By chrF, since most short sentences have a BLEU of nearly nothing.
        """
        order = sorted(range(len(self.chrf)), key=lambda i: (self.chrf[i], self.bleu[i], i))
        return order[:n]


@dataclass(frozen=True)
class Evaluation:
    scores: list[Score]  # BLEU and chrF2; lower-cased once more where asked
    sentences: SentenceScores
    notes: list[str]  # what to know before one believes the scores
    other_scores: list[Score]  # of the output that was compared with; none without one
    other_sentences: SentenceScores | None
    comparisons: list[Comparison]  # one for each score


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    against: Sequence[str] | None = None,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    n_resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Evaluation:
    """Score translations, and compare them with others of the same sentences (`against`).

    `references` holds one list for each set of references. Scores are cased, of detokenised text; with `lowercase` the
    lower-cased ones follow.
    """
    metrics = _count(hypotheses, references, tokenize, lowercase)
    others = [] if against is None else _count(against, references, tokenize, lowercase)
    return Evaluation(
        scores=_scores(metrics, n_resamples, seed),
        sentences=_of_sentences(metrics),
        notes=list(notes_on(hypotheses, references[0], tokenize)),
        other_scores=_scores(others, n_resamples, seed),
        other_sentences=_of_sentences(others) if others else None,
        comparisons=compare(metrics, others, n_resamples=n_resamples, seed=seed) if others else [],
    )


def _count(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: Tokenize, lowercase: bool
) -> list[Counts]:
    return [
        counts
        for lower in ([False, True] if lowercase else [False])
        for counts in (
            count_bleu(hypotheses, references, tokenize=tokenize, lowercase=lower),
            count_chrf(hypotheses, references, lowercase=lower),
        )
    ]


def _scores(metrics: list[Counts], n_resamples: int, seed: int) -> list[Score]:
    """With the signature that sacreBLEU gives to a score with an interval."""
    found = intervals(metrics, n_resamples=n_resamples, seed=seed) if metrics else []
    scores = []
    for counts, interval in zip(metrics, found, strict=True):
        references, _, rest = counts.signature.partition("|")
        signature = f"{references}|bs:{n_resamples}|seed:{seed}|{rest}"
        scores.append(Score(counts.name, counts.value, signature, interval))
    return scores


def _of_sentences(metrics: list[Counts]) -> SentenceScores:
    bleu, chrf = metrics[:2]
    return SentenceScores(bleu.of_sentences.tolist(), chrf.of_sentences.tolist())
