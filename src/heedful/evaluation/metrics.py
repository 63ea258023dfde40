"""BLEU and chrF2, equal to sacreBLEU's, with its signatures; and notes on what makes a BLEU score misleading.

A corpus score is a formula of n-gram counts, summed over sentences. The counts (`Counts`) come from sacreBLEU. The
formulas are implemented here, for many sums at once: 1,000 bootstrap resamples take one matrix product instead of
1,000 passes through the corpus. The tests compare the formulas with sacreBLEU.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from heedful.data.unicode_scripts import ScriptOf, main_script
from heedful.errors import UserError, invalid_choice

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

FloatArray = npt.NDArray[np.float64]
Formula = Callable[[FloatArray], FloatArray]  # summed counts (..., n_counts) -> scores (...), 0 to 100

Tokenize = Literal["13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char"]
# The tokenizers of sacreBLEU that download nothing.
TOKENIZERS: tuple[Tokenize, ...] = ("13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char")
MAX_ORDER = 4  # of BLEU's n-grams
BETA = 2.0  # chrF2 weights recall twice as much as precision


@dataclass(frozen=True)
class Counts:
    """The counts of one metric for each sentence of one output, and the formulas that turn counts into scores."""

    name: str
    signature: str  # sacreBLEU's, without resampling
    rows: FloatArray  # (n_sentences, n_counts)
    formula: Formula  # the score of a corpus
    sentence_formula: Formula  # the score of one sentence, which may be too short for 4-grams

    @property
    def value(self) -> float:
        """The score of the corpus."""
        return float(self.formula(self.rows.sum(axis=0)))

    @property
    def sentence_scores(self) -> FloatArray:
        """(n_sentences,): the score of each sentence."""
        return self.sentence_formula(self.rows)


def count_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
) -> Counts:
    """Count the n-grams of BLEU; `references` holds one list for each set of references, as long as `hypotheses`."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        raise invalid_choice("tokenize", tokenize, TOKENIZERS)
    try:
        # Without force, sacreBLEU warns of tokenised text on standard error; `scoring_notes` reports it instead.
        metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except RuntimeError:  # the packages of a mecab tokenizer are missing
        extra = tokenize.removesuffix("-mecab")
        raise UserError(
            f"--tokenize {tokenize} needs packages that are not installed. "
            f"Install them with: pip install 'sacrebleu[{extra}]'; or use --tokenize char"
        ) from None
    rows = _rows(metric, hypotheses, references)
    return Counts("BLEU", str(metric.get_signature()), rows, bleu_formula, sentence_bleu_formula)


def count_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Counts:
    """Count the character n-grams of chrF2."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=lowercase)
    rows = _rows(metric, hypotheses, references)
    return Counts("chrF2", str(metric.get_signature()), rows, chrf_formula, chrf_formula)


def bleu_formula(sums: FloatArray) -> FloatArray:
    """Compute corpus BLEU from sums of [length, reference length, 4 x matches, 4 x n-grams], with smoothing "exp".

    The score is 0 if the corpus has no n-gram of some order.
    """
    return _bleu(sums, effective=False)


def sentence_bleu_formula(sums: FloatArray) -> FloatArray:
    """Compute sentence BLEU over the n-gram orders that the sentence is long enough for ("effective order")."""
    return _bleu(sums, effective=True)


def _bleu(sums: FloatArray, *, effective: bool) -> FloatArray:
    length, reference_length = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + MAX_ORDER], sums[..., 2 + MAX_ORDER :]
    # Smoothing "exp": the first order without a match counts as 1/2 match, the second as 1/4, ...
    matches = np.where(correct > 0, correct, 0.5 ** np.cumsum(correct == 0, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(total > 0, np.log(matches / total), 0.0 if effective else -np.inf)
        order = np.maximum(1, (total > 0).sum(axis=-1)) if effective else MAX_ORDER
        brevity = np.where(length < reference_length, np.exp(1.0 - reference_length / length), 1.0)
    scores: FloatArray = 100.0 * brevity * np.exp(logs.sum(axis=-1) / order)
    return np.where(correct.any(axis=-1), scores, 0.0)


def chrf_formula(sums: FloatArray) -> FloatArray:
    """Compute chrF2 from sums of [n-grams, reference n-grams, matches] for each order.

    The score is the F-score of the mean precision and the mean recall over all orders.
    """
    triples = sums.reshape(*sums.shape[:-1], -1, 3)
    hypothesis, reference, matches = triples[..., 0], triples[..., 1], triples[..., 2]
    is_used = (hypothesis > 0) & (reference > 0)  # orders that both texts are long enough for
    n_orders = np.maximum(1, is_used.sum(axis=-1))
    precision = np.where(is_used, matches / np.maximum(1, hypothesis), 0.0).sum(axis=-1) / n_orders
    recall = np.where(is_used, matches / np.maximum(1, reference), 0.0).sum(axis=-1) / n_orders
    weighted = BETA**2 * precision + recall
    scores: FloatArray = 100.0 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return scores


def require_aligned(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise a UserError unless all lists have the same length: sacreBLEU silently cuts them to the shortest."""
    if not references:
        raise UserError("there are no references to compare with")
    if not hypotheses:
        raise UserError("there are no translations to score")
    for number, lines in enumerate(references, start=1):
        if len(lines) != len(hypotheses):
            raise UserError(
                f"{len(hypotheses):,} translations, but reference {number} has {len(lines):,}: "
                "line n of both must belong to the same sentence"
            )


def _rows(metric: "Metric", hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> FloatArray:
    require_aligned(hypotheses, references)
    sentences = [_without_empty(texts) for texts in zip(*references, strict=True)]
    # A private method, which sacreBLEU's significance tests use too: no public one returns the counts.
    rows = metric._extract_corpus_statistics(list(hypotheses), [list(texts) for texts in zip(*sentences, strict=True)])
    return np.array(rows, dtype=np.float64)


def _without_empty(texts: Sequence[str]) -> Sequence[str | None]:
    """Replace the empty references of a sentence by None, unless all are empty.

    sacreBLEU would take the length 0 for the closest reference length, and so forgive short translations.
    """
    return [text if text.strip() else None for text in texts] if any(text.strip() for text in texts) else texts


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval of a bootstrap, by percentiles, and the mean of its resamples."""

    low: float
    high: float
    mean: float

    @property
    def margin(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Score:
    """The value of a metric on a corpus, with what makes it comparable.

    >>> print(Score("BLEU", 57.8441, "nrefs:1|case:mixed"))
    BLEU 57.84 (nrefs:1|case:mixed)
    """

    name: str
    value: float  # 0 to 100
    signature: str  # sacreBLEU's
    interval: Interval | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
) -> Score:
    """Compute the BLEU score of a corpus.

    `references` holds one list for each set of references, as long as `hypotheses`. The texts are detokenised.

    >>> print(bleu(["the old dog runs home"], [["the old dog runs home"]]).value)
    100.0
    """
    counts = count_bleu(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    return Score(counts.name, counts.value, counts.signature)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """Compute the chrF2 score of a corpus: an F-score of character n-grams, suited to languages with many word forms.

    >>> print(f"{chrf(['the dog runs'], [['the dogs run']]).value:.1f}")
    56.1
    """
    counts = count_chrf(hypotheses, references, lowercase=lowercase)
    return Score(counts.name, counts.value, counts.signature)


N_SCRIPT_LINES = 200  # references that decide the script
TOKENISED_LINES = 100  # translations ending in " ." before a note, as in sacreBLEU


@dataclass(frozen=True)
class UnspacedScript:
    """A script without spaces between words, where the tokenizer 13a takes a whole clause for one word."""

    language: str
    tokenize: Tokenize  # the tokenizer that fits


UNSPACED_SCRIPTS = {
    "Han": UnspacedScript("Chinese", "zh"),
    "Kana": UnspacedScript("Japanese", "ja-mecab"),
    "Thai": UnspacedScript("Thai", "char"),
    "Lao": UnspacedScript("Lao", "char"),
    "Khmer": UnspacedScript("Khmer", "char"),
    "Myanmar": UnspacedScript("Burmese", "char"),
}


def unspaced_script(references: Sequence[str]) -> UnspacedScript | None:
    """Return the script of most references if it has no spaces between words, else None."""
    script_of = ScriptOf()
    scripts = [script for line in references[:N_SCRIPT_LINES] if (script := main_script(line, script_of))]
    return UNSPACED_SCRIPTS.get(max(scripts, key=scripts.count)) if scripts else None


def default_tokenizer(references: Sequence[str]) -> Tokenize:
    """Choose BLEU's tokenizer by the script of the references; never mecab, which needs another package.

    >>> default_tokenizer(["Ein Hund rennt."]), default_tokenizer(["一只狗在街上奔跑。"])
    ('13a', 'zh')
    """
    script = unspaced_script(references)
    if script is None:
        return "13a"
    return script.tokenize if script.tokenize == "zh" else "char"


def scoring_notes(hypotheses: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> Iterator[str]:
    """Yield a sentence for each reason why the BLEU score may mislead, with the remedy."""
    script = unspaced_script(references)
    if script is not None and tokenize in ("13a", "intl", "none"):
        yield (
            f"the references look {script.language}, and the tokenizer {tokenize} takes all characters between two "
            f"spaces for one word, so BLEU means little; use --tokenize {script.tokenize}, or compare chrF"
        )
    n_tokenised = sum(line.endswith(" .") for line in hypotheses)
    if tokenize != "none" and n_tokenised >= TOKENISED_LINES:
        yield (
            f"{n_tokenised:,} translations end in ' .' and look tokenised, which changes BLEU; detokenise translations "
            "and references, or use --tokenize none if both are tokenised in one way"
        )
