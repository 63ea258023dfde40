"""How good translations are, by sacreBLEU, with the signature that makes a number comparable."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.evaluation.counts import Tokenize, count_bleu, count_chrf
from heedful.evaluation.resampling import Interval


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
