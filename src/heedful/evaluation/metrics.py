"""BLEU and chrF, as sacreBLEU computes them, with the signatures that make numbers comparable.

A metric is a table of counts, one row for each sentence (`Counts`): a corpus, a resample or a mixture of two outputs is
a sum of rows. The counts come from sacreBLEU. The formulas are implemented here for many sums at once, so that a
thousand resamples are one matrix product; tests compare them with sacreBLEU's.
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
Formula = Callable[[FloatArray], FloatArray]  # sums of rows (..., counts) -> scores (...), 0 to 100

Tokenize = Literal["13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char"]
# The tokenizers of sacreBLEU that need no download.
TOKENIZERS: tuple[Tokenize, ...] = ("13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char")
ORDERS = 4  # of BLEU's n-grams
BETA = 2.0  # chrF2: recall counts twice


@dataclass(frozen=True)
class Counts:
    """The counts of one metric on one output."""

    name: str
    signature: str  # sacreBLEU's, without resampling
    rows: FloatArray  # (sentences, counts)
    formula: Formula  # for a corpus
    sentence_formula: Formula  # for single sentences, which may be too short for 4-grams

    @property
    def value(self) -> float:
        """The score of the corpus, 0 to 100."""
        return float(self.formula(self.rows.sum(axis=0)))

    @property
    def of_sentences(self) -> FloatArray:
        """The score of each sentence."""
        return self.sentence_formula(self.rows)


def count_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
) -> Counts:
    """Count what BLEU needs; `references` has one list for each set of references, each as long as `hypotheses`."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        raise invalid_choice("tokenize", tokenize, TOKENIZERS)
    try:
        # force: no warning about tokenised text on standard error; `notes_on` returns it.
        metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except RuntimeError:  # the tokenizer needs other packages
        extra = tokenize.removesuffix("-mecab")
        raise UserError(
            f"the tokenizer {tokenize} needs packages that are not installed. "
            f"Install them with: pip install 'sacrebleu[{extra}]'; or use --tokenize char"
        ) from None
    rows = _rows(metric, hypotheses, references)
    return Counts("BLEU", str(metric.get_signature()), rows, bleu_formula, sentence_bleu_formula)


def count_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Counts:
    """Count what chrF2, the F-score of character n-grams, needs."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=lowercase)
    rows = _rows(metric, hypotheses, references)
    return Counts("chrF2", str(metric.get_signature()), rows, chrf_formula, chrf_formula)


def bleu_formula(sums: FloatArray) -> FloatArray:
    """Compute BLEU from [length, reference length, 4 x correct, 4 x total]; 0 if an order has no n-gram."""
    return _bleu(sums, effective=False)


def sentence_bleu_formula(sums: FloatArray) -> FloatArray:
    """Compute BLEU over the orders of n-grams that the sentence is long enough for."""
    return _bleu(sums, effective=True)


def _bleu(sums: FloatArray, *, effective: bool) -> FloatArray:
    length, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # The first order without a match counts as half a match, the next as a quarter, …
    matches = np.where(correct > 0, correct, 0.5 ** np.cumsum(correct == 0, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(total > 0, np.log(matches / total), 0.0 if effective else -np.inf)
        order = np.maximum(1, (total > 0).sum(axis=-1)) if effective else ORDERS
        brevity = np.where(length < reference, np.exp(1.0 - reference / length), 1.0)
    scores: FloatArray = 100.0 * brevity * np.exp(logs.sum(axis=-1) / order)
    return np.where(correct.any(axis=-1), scores, 0.0)


def chrf_formula(sums: FloatArray) -> FloatArray:
    """Compute the F-score of mean precision and recall from [n-grams, reference n-grams, matches] of each order."""
    triples = sums.reshape(*sums.shape[:-1], -1, 3)
    ngrams, reference, matches = triples[..., 0], triples[..., 1], triples[..., 2]
    counts = (ngrams > 0) & (reference > 0)  # orders that both texts are long enough for
    n_orders = np.maximum(1, counts.sum(axis=-1))
    precision = np.where(counts, matches / np.maximum(1, ngrams), 0.0).sum(axis=-1) / n_orders
    recall = np.where(counts, matches / np.maximum(1, reference), 0.0).sum(axis=-1) / n_orders
    weighted = BETA**2 * precision + recall
    scores: FloatArray = 100.0 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return scores


def require_aligned(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse lists of different lengths: sacreBLEU would silently ignore the last sentences."""
    if not references:
        raise UserError("there are no references to compare with")
    if not hypotheses:
        raise UserError("there is no translation to score")
    for number, lines in enumerate(references, start=1):
        if len(lines) != len(hypotheses):
            raise UserError(
                f"{len(hypotheses):,} translations, but reference {number} has {len(lines):,}: "
                "sentence n of one belongs to sentence n of the other"
            )


def _rows(metric: "Metric", hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> FloatArray:
    require_aligned(hypotheses, references)
    by_sentence = [_references_of(lines) for lines in zip(*references, strict=True)]
    # sacreBLEU's significance tests use this method; no public method returns the counts.
    rows = metric._extract_corpus_statistics(
        list(hypotheses), [list(lines) for lines in zip(*by_sentence, strict=True)]
    )
    return np.array(rows, dtype=np.float64)


def _references_of(lines: Sequence[str]) -> Sequence[str | None]:
    """Return a sentence's references without empty ones, if there are others: sacreBLEU would use their length 0."""
    return [line if line.strip() else None for line in lines] if any(line.strip() for line in lines) else lines


@dataclass(frozen=True)
class Interval:
    """The interval of 95 % of the resamples, by percentiles."""

    low: float
    high: float
    mean: float

    @property
    def margin(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Score:
    """A score with its signature."""

    name: str
    value: float  # 0 to 100
    signature: str
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
    """Compute BLEU of a corpus; `references` has one list for each set of references, each as long as `hypotheses`.

    >>> round(bleu(["a dog runs fast"], [["a dog runs slowly"]]).value, 1)
    59.5
    """
    counts = count_bleu(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    return Score(counts.name, counts.value, counts.signature)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """Compute chrF2 of a corpus. It compares character n-grams, which suits rich morphology."""
    counts = count_chrf(hypotheses, references, lowercase=lowercase)
    return Score(counts.name, counts.value, counts.signature)


SAMPLE = 200  # references whose script is determined
TOKENISED_LINES = 100  # as in sacreBLEU


@dataclass(frozen=True)
class Unspaced:
    """A script without spaces between words: the tokenizer 13a takes a whole clause for one word."""

    language: str
    tokenize: Tokenize


UNSPACED = {
    "Han": Unspaced("Chinese", "zh"),
    "Kana": Unspaced("Japanese", "ja-mecab"),
    "Thai": Unspaced("Thai", "char"),
    "Lao": Unspaced("Lao", "char"),
    "Khmer": Unspaced("Khmer", "char"),
    "Myanmar": Unspaced("Burmese", "char"),
}


def unspaced(references: Sequence[str]) -> Unspaced | None:
    """Return the script of most references, if it has no spaces between words."""
    script_of = ScriptOf()
    scripts = [script for line in references[:SAMPLE] if (script := main_script(line, script_of))]
    return UNSPACED.get(max(scripts, key=scripts.count)) if scripts else None


def tokenize_for(references: Sequence[str]) -> Tokenize:
    """Choose the tokenizer of BLEU for references, without other packages such as mecab."""
    script = unspaced(references)
    if script is None:
        return "13a"
    return script.tokenize if script.tokenize == "zh" else "char"


def notes_on(hypotheses: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> Iterator[str]:
    """Yield what makes a BLEU score misleading, and what to do."""
    script = unspaced(references)
    if script is not None and tokenize in ("13a", "intl", "none"):
        yield (
            f"the references look {script.language}, and {tokenize} takes characters without spaces for one "
            f"word, so that its BLEU means little; use --tokenize {script.tokenize}, or read chrF"
        )
    n_tokenised = sum(line.endswith(" .") for line in hypotheses)
    if tokenize != "none" and n_tokenised >= TOKENISED_LINES:
        yield (
            f"{n_tokenised:,} translations end in ' .': they look tokenised, which changes BLEU; detokenise both "
            "sides, or use --tokenize none if both are tokenised alike"
        )
