"""How good translations are, by sacreBLEU, with the signature that makes a number comparable."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


@dataclass(frozen=True)
class Score:
    name: str
    value: float  # 0 to 100
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a") -> Score:
    """BLEU of the corpus; `references` holds one list for each set of references, each as long as `hypotheses`."""
    metric = BLEU(tokenize=tokenize)
    value = metric.corpus_score(list(hypotheses), [list(lines) for lines in references]).score
    return Score("BLEU", value, str(metric.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """chrF2 of the corpus: characters instead of words, kinder to rich morphology."""
    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), [list(lines) for lines in references]).score
    return Score("chrF2", value, str(metric.get_signature()))
