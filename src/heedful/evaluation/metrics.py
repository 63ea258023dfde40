"""What a score is made of, sentence by sentence: a corpus, a resample, a mixture of two outputs are all sums of rows.

The counts are sacreBLEU's own. The formulas are written again for many sums at once, and a test holds them equal to
sacreBLEU's: a thousand resamples then take one matrix product instead of a thousand walks through the corpus.

How good translations are, by sacreBLEU, with the signature that makes a number comparable.

What makes a BLEU score mean less than it seems to: said beside the score, never mended in silence.
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
# Those of sacreBLEU that need no download.
TOKENIZERS: tuple[Tokenize, ...] = ("13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char")
ORDERS = 4  # of BLEU's n-grams
BETA = 2.0  # chrF2: recall counts twice


@dataclass(frozen=True)
class Counts:
    """One metric on one output."""

    name: str
    signature: str  # sacreBLEU's, without resampling
    rows: FloatArray  # (sentences, counts)
    formula: Formula  # of a corpus
    sentence_formula: Formula  # of one sentence, which may be too short for 4-grams

    @property
    def value(self) -> float:
        return float(self.formula(self.rows.sum(axis=0)))

    @property
    def of_sentences(self) -> FloatArray:
        return self.sentence_formula(self.rows)


def count_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
) -> Counts:
    """BLEU's counts; `references` holds one list for each set of references, each as long as `hypotheses`."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        raise invalid_choice("tokenize", tokenize, TOKENIZERS)
    try:
        # force: it would otherwise write a warning to standard error; `notes.py` says the same where it is due.
        metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except RuntimeError:  # a tokenizer with dependencies of its own
        extra = tokenize.removesuffix("-mecab")
        raise UserError(
            f"the tokenizer {tokenize} needs packages that are not installed. "
            f"Install them with: pip install 'sacrebleu[{extra}]'; or use --tokenize char"
        ) from None
    rows = _rows(metric, hypotheses, references)
    return Counts("BLEU", str(metric.get_signature()), rows, bleu_formula, sentence_bleu_formula)


def count_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Counts:
    """The counts of chrF2, the F-score of character n-grams."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=lowercase)
    rows = _rows(metric, hypotheses, references)
    return Counts("chrF2", str(metric.get_signature()), rows, chrf_formula, chrf_formula)


def bleu_formula(sums: FloatArray) -> FloatArray:
    """Of [written, reference, 4 x correct, 4 x total]; 0 where an order has no n-gram at all. Smoothing: exp."""
    return _bleu(sums, effective=False)


def sentence_bleu_formula(sums: FloatArray) -> FloatArray:
    """The same over those orders that the sentence is long enough for."""
    return _bleu(sums, effective=True)


def _bleu(sums: FloatArray, *, effective: bool) -> FloatArray:
    written, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # Each order without a match counts as half a match, the next such as a quarter, …
    matches = np.where(correct > 0, correct, 0.5 ** np.cumsum(correct == 0, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(total > 0, np.log(matches / total), 0.0 if effective else -np.inf)
        order = np.maximum(1, (total > 0).sum(axis=-1)) if effective else ORDERS
        brevity = np.where(written < reference, np.exp(1.0 - reference / written), 1.0)
    scores: FloatArray = 100.0 * brevity * np.exp(logs.sum(axis=-1) / order)
    return np.where(correct.any(axis=-1), scores, 0.0)


def chrf_formula(sums: FloatArray) -> FloatArray:
    """Of [written, reference, matching] for each order: the F-score of the mean precision and the mean recall."""
    triples = sums.reshape(*sums.shape[:-1], -1, 3)
    written, reference, matching = triples[..., 0], triples[..., 1], triples[..., 2]
    counts = (written > 0) & (reference > 0)  # orders that both texts are long enough for
    n_orders = np.maximum(1, counts.sum(axis=-1))
    precision = np.where(counts, matching / np.maximum(1, written), 0.0).sum(axis=-1) / n_orders
    recall = np.where(counts, matching / np.maximum(1, reference), 0.0).sum(axis=-1) / n_orders
    weighted = BETA**2 * precision + recall
    scores: FloatArray = 100.0 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return scores


def require_aligned(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """sacreBLEU would score as many sentences as the shortest list has, and say nothing."""
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
    given = [_given(lines) for lines in zip(*references, strict=True)]
    # sacreBLEU's own significance tests use this method; there is no public one that gives the counts.
    rows = metric._extract_corpus_statistics(list(hypotheses), [list(lines) for lines in zip(*given, strict=True)])
    return np.array(rows, dtype=np.float64)


def _given(lines: Sequence[str]) -> Sequence[str | None]:
    """A sentence's references. Beside others, an empty one is none: sacreBLEU would take 0 for a right length."""
    return [line if line.strip() else None for line in lines] if any(line.strip() for line in lines) else lines


@dataclass(frozen=True)
class Interval:
    """Where 95 % of the resamples lie, by percentiles."""

    low: float
    high: float
    mean: float

    @property
    def margin(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Score:
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
    """BLEU of the corpus; `references` holds one list for each set of references, each as long as `hypotheses`."""
    counts = count_bleu(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    return Score(counts.name, counts.value, counts.signature)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """chrF2 of the corpus: characters instead of words, kinder to rich morphology."""
    counts = count_chrf(hypotheses, references, lowercase=lowercase)
    return Score(counts.name, counts.value, counts.signature)


LOOK_AT = 200  # references
TOKENISED_LINES = 100  # sacreBLEU's own limit


@dataclass(frozen=True)
class Unspaced:
    """A script whose words are not separated by spaces, so that 13a takes a whole clause for one word."""

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
    """The script of most references, if it has no spaces between words."""
    script_of = ScriptOf()
    scripts = [script for line in references[:LOOK_AT] if (script := main_script(line, script_of))]
    return UNSPACED.get(max(scripts, key=scripts.count)) if scripts else None


def tokenize_for(references: Sequence[str]) -> Tokenize:
    """How BLEU finds words where nobody has said it, without another package: mecab is one."""
    found = unspaced(references)
    if found is None:
        return "13a"
    return found.tokenize if found.tokenize == "zh" else "char"


def notes_on(hypotheses: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> Iterator[str]:
    """Each in one sentence, with what to do."""
    found = unspaced(references)
    if found is not None and tokenize in ("13a", "intl", "none"):
        yield (
            f"the references look {found.language}, and {tokenize} takes a run of characters without a space for one "
            f"word: its BLEU says little; use --tokenize {found.tokenize}, or read chrF"
        )
    n_tokenised = sum(line.endswith(" .") for line in hypotheses)
    if tokenize != "none" and n_tokenised >= TOKENISED_LINES:
        yield (
            f"{n_tokenised:,} translations end in ' .': they look tokenised, which changes BLEU; detokenise both "
            "sides, or use --tokenize none if both are tokenised alike"
        )
