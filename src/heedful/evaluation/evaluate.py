"""Evaluate systems on a test set: read files, translate with models, score, compare, and find the worst sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from heedful.data.corpus import read_text
from heedful.data.problems import BadData
from heedful.errors import UserError
from heedful.evaluation.metrics import Counts, Score, Tokenize, count_bleu, count_chrf, notes_on
from heedful.evaluation.significance import RESAMPLES, SEED, Comparison, compare, intervals

if TYPE_CHECKING:
    from heedful.decoding.decoding_stats import DecodingStats
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.translator import Translator
    from heedful.evaluation.perplexity import Likelihood

Compute = Literal["float32", "int8"]
OnProgress = Callable[[str, int], None]  # what is being done, and for how many sentences it is done
BLOCK = 512  # sentences between two reports of progress; enough for full batches


@dataclass(frozen=True)
class Texts:
    """A test set: line n of the sources and of each list of references belong together."""

    sources: list[str] | None
    references: list[list[str]]
    path: Path  # of the first references, for messages

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class System:
    """A model or a file whose translations are evaluated."""

    name: str
    hypotheses: list[str]
    likelihood: "Likelihood | None" = None  # of the first references; None for a file
    notes: tuple[str, ...] = ()  # on lines that were too long, and translations that were cut off


def read_texts(source: Path | None, targets: Sequence[Path]) -> Texts:
    """Read the files of a test set; they must have the same number of lines."""
    references = [_lines(target) for target in targets]
    texts = Texts(None if source is None else _lines(source), references, targets[0])
    for path, lines in zip(targets, references, strict=True):
        _require_as_many(path, lines, texts)
    if source is not None and texts.sources is not None:
        _require_as_many(source, texts.sources, texts)
    return texts


def file_system(path: Path, texts: Texts) -> System:
    """Read translations from a file: plain text, or JSONL with "text"."""
    lines = _lines(path)
    _require_as_many(path, lines, texts)
    return System(str(path), lines)


def model_system(
    path: Path,
    texts: Texts,
    *,
    beam: int = 5,
    compute: Compute = "float32",
    device: str = "cpu",
    on_progress: OnProgress = lambda what, done: None,
) -> System:
    """Translate the sources with a model, and compute the likelihood of the references (in float32)."""
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.translator import Translator
    from heedful.evaluation.perplexity import likelihood
    from heedful.models.encoder_decoder import encoder_decoder
    from heedful.models.model_info import find_model_folder
    from heedful.models.model_io import load_model

    if texts.sources is None:
        raise UserError(f"{path}: a model needs text to translate: give --source")
    translator = Translator.load(path, compute=compute, device=device)
    hypotheses, stats = _translate(
        translator,
        texts.sources,
        SearchSettings(beam=beam),
        on_progress=lambda done: on_progress(f"{path}: translating", done),
    )
    loaded = load_model(find_model_folder(path), device=device)
    assert loaded.tokenizers is not None  # else the translator would have refused the model
    reference_likelihood = likelihood(
        encoder_decoder(loaded),
        loaded.tokenizers,
        texts.sources,
        texts.references[0],
        on_progress=lambda done: on_progress(f"{path}: reading the references", done),
    )
    notes = (*stats.warnings(of="line"), *reference_likelihood.notes())
    return System(str(path), hypotheses, reference_likelihood, notes)


def _translate(
    translator: "Translator", sources: Sequence[str], settings: "SearchSettings", *, on_progress: Callable[[int], None]
) -> "tuple[list[str], DecodingStats]":
    from heedful.decoding.decoding_stats import DecodingStats

    hypotheses: list[str] = []
    stats = DecodingStats()
    on_progress(0)
    for start in range(0, len(sources), BLOCK):
        result = translator.translate_block(sources[start : start + BLOCK], settings, start=start)
        stats += result.stats
        hypotheses += (best[0].text for best in result.outputs)
        on_progress(len(hypotheses))
    return hypotheses, stats


def _lines(path: Path) -> list[str]:
    try:
        return [example.source for example in read_text(path, keep_empty=True)]
    except BadData as error:  # the rest of its remedy is how to leave lines out, which is for training only
        remedy = error.remedy.split("\n")[0]
        raise BadData(error.kind, error.place, error.value, remedy=remedy) from None


def _require_as_many(path: Path, lines: Sequence[str], texts: Texts) -> None:
    if len(lines) != len(texts):
        raise UserError(
            f"{path}: {len(lines):,} lines, but {texts.path} has {len(texts):,}. Line n of one must belong to line n "
            "of the other; after a missing line, every sentence would be compared with another one"
        )


@dataclass(frozen=True)
class SentenceScores:
    """The scores of each sentence, 0 to 100, cased."""

    bleu: list[float]
    chrf: list[float]

    def worst(self, n: int) -> list[int]:
        """Return the indices of the n sentences with the lowest chrF, the worst first; of equal ones, the lower BLEU.

        It is chrF, since most short sentences have a BLEU near 0.
        """
        order = sorted(range(len(self.chrf)), key=lambda i: (self.chrf[i], self.bleu[i], i))
        return order[:n]


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate_texts`."""

    scores: list[Score]  # BLEU and chrF2, and with `lowercase` both again in lower case
    sentences: SentenceScores
    notes: list[str]  # what may make the scores misleading
    other_scores: list[Score]  # of the other output, if there is one
    other_sentences: SentenceScores | None
    comparisons: list[Comparison]  # one for each score


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
    """Score translations, and compare them with other translations of the same sentences (`against`).

    `references` has one list for each set of references. Texts are detokenised and cased; with `lowercase`, scores of
    lower-cased text follow. `n_resamples` and `seed` are those of the bootstrap.

    >>> result = evaluate_texts(["a dog runs fast"], [["a dog runs fast"]])
    >>> [round(score.value) for score in result.scores]
    [100, 100]
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
    """Make scores with intervals, and the signatures that sacreBLEU gives them."""
    bounds = intervals(metrics, n_resamples=n_resamples, seed=seed) if metrics else []
    scores = []
    for counts, interval in zip(metrics, bounds, strict=True):
        references, _, rest = counts.signature.partition("|")
        signature = f"{references}|bs:{n_resamples}|seed:{seed}|{rest}"
        scores.append(Score(counts.name, counts.value, signature, interval))
    return scores


def _of_sentences(metrics: list[Counts]) -> SentenceScores:
    bleu, chrf = metrics[:2]
    return SentenceScores(bleu.of_sentences.tolist(), chrf.of_sentences.tolist())
