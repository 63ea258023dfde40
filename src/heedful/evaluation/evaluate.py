"""Who is evaluated on what: aligned files in, the translations of a model or of a file out.

Translations in, all that can be said of them out: scores, how sure they are, what differs, what is worst.
"""

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
Tell = Callable[[str, int], None]  # what is being done, and to how many sentences it has been
TOLD = 512  # sentences that are translated before it is told again; enough for full batches


@dataclass(frozen=True)
class Texts:
    """What is translated and how: line n of each belongs to line n of the others."""

    sources: list[str] | None
    references: list[list[str]]
    place: Path  # the file of the first references, for messages

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class System:
    name: str
    hypotheses: list[str]
    likelihood: "Likelihood | None" = None  # of the first references; only a model has one
    notes: tuple[str, ...] = ()  # what became of lines that were too long, and of translations


def read_texts(source: Path | None, targets: Sequence[Path]) -> Texts:
    """The files of a test set, refused if they do not have the same number of lines."""
    references = [_lines(target) for target in targets]
    texts = Texts(None if source is None else _lines(source), references, targets[0])
    for path, lines in zip(targets, references, strict=True):
        _require_as_many(path, lines, texts)
    if source is not None and texts.sources is not None:
        _require_as_many(source, texts.sources, texts)
    return texts


def file_system(path: Path, texts: Texts) -> System:
    """Translations that somebody else made: plain text, or JSONL with "text"."""
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
    tell: Tell = lambda what, done: None,
) -> System:
    """What a model makes of the sources, and how likely it finds the references (in float32, whatever it computes)."""
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.translator import Translator
    from heedful.evaluation.perplexity import likelihood
    from heedful.models.encoder_decoder import encoder_decoder
    from heedful.models.model_info import find_model_folder
    from heedful.models.model_io import load_model

    if texts.sources is None:
        raise UserError(f"{path}: a model needs text to translate: give --source")
    translator = Translator.load(path, compute=compute, device=device)
    hypotheses, tally = _translated(
        translator, texts.sources, SearchSettings(beam=beam), tell=lambda done: tell(f"{path}: translating", done)
    )
    loaded = load_model(find_model_folder(path), device=device)
    assert loaded.tokenizers is not None  # the translator would have refused it
    likely = likelihood(
        encoder_decoder(loaded),
        loaded.tokenizers,
        texts.sources,
        texts.references[0],
        tell=lambda done: tell(f"{path}: reading the references", done),
    )
    return System(str(path), hypotheses, likely, (*tally.warnings(of="line"), *likely.notes()))


def _translated(
    translator: "Translator", sources: Sequence[str], settings: "SearchSettings", *, tell: Callable[[int], None]
) -> "tuple[list[str], DecodingStats]":
    from heedful.decoding.decoding_stats import DecodingStats

    hypotheses: list[str] = []
    tally = DecodingStats()
    tell(0)
    for start in range(0, len(sources), TOLD):
        answer = translator.translate_block(sources[start : start + TOLD], settings, start=start)
        tally += answer.stats
        hypotheses += (best[0].text for best in answer.outputs)
        tell(len(hypotheses))
    return hypotheses, tally


def _lines(path: Path) -> list[str]:
    try:
        return [example.source for example in read_text(path, keep_empty=True)]
    except BadData as error:  # its remedy ends with how to leave lines out of training: here none may be left out
        remedy = error.remedy.split("\n")[0]
        raise BadData(error.kind, error.place, error.value, remedy=remedy) from None


def _require_as_many(path: Path, lines: Sequence[str], texts: Texts) -> None:
    if len(lines) != len(texts):
        raise UserError(
            f"{path}: {len(lines):,} lines, but {texts.place} has {len(texts):,}. Line n of one must belong to line n "
            "of the other: from a missing line on, every score would be that of other sentences"
        )


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
