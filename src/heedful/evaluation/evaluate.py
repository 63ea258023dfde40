"""Evaluate the translations of a model or of a file: scores, confidence intervals, a comparison, the worst sentences.

`heedful evaluate` reads its files and models here (`read_evaluation_set`, `system_from_file`, `system_from_model`).
`evaluate_texts` scores lists of strings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from heedful.data.corpus import read_text
from heedful.data.problems import BadData
from heedful.errors import UserError
from heedful.evaluation.metrics import Counts, Score, Tokenize, count_bleu, count_chrf, scoring_notes
from heedful.evaluation.significance import RESAMPLES, SEED, Comparison, compare, intervals

if TYPE_CHECKING:
    from heedful.decoding.decoding_stats import DecodingStats
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.translator import Translator
    from heedful.evaluation.perplexity import Likelihood

Compute = Literal["float32", "int8"]
OnProgress = Callable[[str, int], None]  # (description of the work, sentences done)
SENTENCES_PER_REPORT = 512  # translated between two calls of on_progress; enough for full batches


@dataclass(frozen=True)
class EvaluationSet:
    """The sources and references of a test set; line n of each list belongs to the same sentence."""

    sources: list[str] | None
    references: list[list[str]]  # one list for each set of references
    path: Path  # the file of the first references, for messages

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class System:
    """A model or a file, with its translations of an `EvaluationSet`."""

    name: str
    hypotheses: list[str]
    likelihood: "Likelihood | None" = None  # of the first references; None for a file
    notes: tuple[str, ...] = ()  # warnings on truncated lines, truncated translations and pairs that were not scored


def read_evaluation_set(source: Path | None, targets: Sequence[Path]) -> EvaluationSet:
    """Read the files of a test set; a UserError names two files with different numbers of lines."""
    references = [_lines(target) for target in targets]
    texts = EvaluationSet(None if source is None else _lines(source), references, targets[0])
    for path, lines in zip(targets, references, strict=True):
        _require_equal_counts(path, lines, texts)
    if source is not None and texts.sources is not None:
        _require_equal_counts(source, texts.sources, texts)
    return texts


def system_from_file(path: Path, texts: EvaluationSet) -> System:
    """Read translations from a file: plain text, or JSONL with the key "text"."""
    lines = _lines(path)
    _require_equal_counts(path, lines, texts)
    return System(str(path), lines)


def system_from_model(
    path: Path,
    texts: EvaluationSet,
    *,
    beam: int = 5,
    compute: Compute = "float32",
    device: str = "cpu",
    on_progress: OnProgress = lambda activity, n_done: None,
) -> System:
    """Translate the sources with a model, and compute the likelihood of the first references.

    The likelihood is always computed in float32, whatever `compute` is.
    """
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.translator import Translator
    from heedful.evaluation.perplexity import likelihood
    from heedful.models.encoder_decoder import encoder_decoder
    from heedful.models.model_info import find_model_folder
    from heedful.models.model_io import load_model

    if texts.sources is None:
        raise UserError(f"{path}: a model needs a text to translate: pass --source")
    translator = Translator.load(path, compute=compute, device=device)
    hypotheses, stats = _translate(
        translator,
        texts.sources,
        SearchSettings(beam=beam),
        on_progress=lambda n_done: on_progress(f"{path}: translating", n_done),
    )
    loaded = load_model(find_model_folder(path), device=device)
    assert loaded.tokenizers is not None  # Translator.load requires tokenizers
    scored = likelihood(
        encoder_decoder(loaded),
        loaded.tokenizers,
        texts.sources,
        texts.references[0],
        on_progress=lambda n_done: on_progress(f"{path}: scoring the references", n_done),
    )
    return System(str(path), hypotheses, scored, (*stats.warnings(of="line"), *scored.notes()))


def _translate(
    translator: "Translator", sources: Sequence[str], settings: "SearchSettings", *, on_progress: Callable[[int], None]
) -> "tuple[list[str], DecodingStats]":
    from heedful.decoding.decoding_stats import DecodingStats

    hypotheses: list[str] = []
    stats = DecodingStats()
    on_progress(0)
    for start in range(0, len(sources), SENTENCES_PER_REPORT):
        block = translator.translate_block(sources[start : start + SENTENCES_PER_REPORT], settings, start=start)
        stats += block.stats
        hypotheses += (n_best[0].text for n_best in block.outputs)
        on_progress(len(hypotheses))
    return hypotheses, stats


def _lines(path: Path) -> list[str]:
    try:
        return [example.source for example in read_text(path, keep_empty=True)]
    except BadData as error:  # omit the part of its remedy about skipping lines: a test set may not lose any
        remedy = error.remedy.split("\n")[0]
        raise BadData(error.kind, error.place, error.value, remedy=remedy) from None


def _require_equal_counts(path: Path, lines: Sequence[str], texts: EvaluationSet) -> None:
    if len(lines) != len(texts):
        raise UserError(
            f"{path}: {len(lines):,} lines, but {texts.path} has {len(texts):,}. Line n of both files must belong to "
            "the same sentence; find the missing or additional lines"
        )


@dataclass(frozen=True)
class SentenceScores:
    """The cased BLEU and chrF2 of each sentence, 0 to 100."""

    bleu: list[float]
    chrf: list[float]

    def worst(self, n: int) -> list[int]:
        """Return the indices of the n sentences with the lowest chrF, lowest first; ties are broken by BLEU.

        chrF decides because the BLEU of most short sentences is near 0.

        >>> SentenceScores(bleu=[30.0, 0.0, 5.0], chrf=[60.0, 20.0, 40.0]).worst(2)
        [1, 2]
        """
        order = sorted(range(len(self.chrf)), key=lambda i: (self.chrf[i], self.bleu[i], i))
        return order[:n]


@dataclass(frozen=True)
class Evaluation:
    """The scores of one output and, if there is a second output, its scores and the comparison."""

    scores: list[Score]  # BLEU, chrF2; with `lowercase` also lower-cased BLEU, chrF2
    sentences: SentenceScores
    notes: list[str]  # reasons why the scores may mislead, with remedies
    other_scores: list[Score]  # of the second output; empty without one
    other_sentences: SentenceScores | None
    comparisons: list[Comparison]  # first output minus second, one for each score; empty without a second output


def evaluate_texts(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    against: Sequence[str] | None = None,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    n_resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Evaluation:
    """Score translations, and compare them with a second output for the same sentences (`against`).

    `references` holds one list for each set of references. The texts are detokenised. Scores are cased; with
    `lowercase`, the lower-cased scores follow.

    >>> result = evaluate_texts(["A dog runs."], [["A dog runs."]], against=["A cat runs."])
    >>> [(score.name, round(score.value)) for score in result.scores]
    [('BLEU', 100), ('chrF2', 100)]
    >>> [comparison.difference > 0 for comparison in result.comparisons]
    [True, True]
    """
    metrics = _count(hypotheses, references, tokenize, lowercase)
    others = [] if against is None else _count(against, references, tokenize, lowercase)
    return Evaluation(
        scores=_scores(metrics, n_resamples, seed),
        sentences=_sentence_scores(metrics),
        notes=list(scoring_notes(hypotheses, references[0], tokenize)),
        other_scores=_scores(others, n_resamples, seed),
        other_sentences=_sentence_scores(others) if others else None,
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
    """Compute scores with intervals; the signature names the resampling as sacreBLEU does."""
    confidence = intervals(metrics, n_resamples=n_resamples, seed=seed) if metrics else []
    scores = []
    for counts, interval in zip(metrics, confidence, strict=True):
        references, _, rest = counts.signature.partition("|")
        signature = f"{references}|bs:{n_resamples}|seed:{seed}|{rest}"
        scores.append(Score(counts.name, counts.value, signature, interval))
    return scores


def _sentence_scores(metrics: list[Counts]) -> SentenceScores:
    bleu, chrf = metrics[:2]
    return SentenceScores(bleu.sentence_scores.tolist(), chrf.sentence_scores.tolist())
