"""Evaluate translations: BLEU and chrF2 with confidence intervals, comparisons, perplexity, and MBR decoding.

    metrics           BLEU and chrF2 by sacreBLEU, and notes on what makes a score misleading
    significance      confidence intervals by bootstrap, p-values by approximate randomisation
    evaluate          all of it for a test set, as `heedful evaluate` prints it
    perplexity        the likelihood of the references under a model
    mbr               choose one of several translations of a sentence by minimum Bayes risk

    >>> from heedful.evaluation import mbr_decode
    >>> mbr_decode([["a dog runs"], ["a dog runs"], ["the cat"]])
    ['a dog runs']

Public names are imported when they are first used, so that scoring a file of translations does not load torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.evaluation.evaluate import Evaluation, evaluate_texts
    from heedful.evaluation.mbr import expected_utility, mbr_decode
    from heedful.evaluation.metrics import Score, bleu, chrf
    from heedful.evaluation.perplexity import Likelihood, likelihood
    from heedful.evaluation.significance import Comparison, compare, intervals

__all__ = [
    "Comparison",
    "Evaluation",
    "Likelihood",
    "Score",
    "bleu",
    "chrf",
    "compare",
    "evaluate_texts",
    "expected_utility",
    "intervals",
    "likelihood",
    "mbr_decode",
]

_WHERE = {
    "Comparison": "significance",
    "Evaluation": "evaluate",
    "Likelihood": "perplexity",
    "Score": "metrics",
    "bleu": "metrics",
    "chrf": "metrics",
    "compare": "significance",
    "evaluate_texts": "evaluate",
    "intervals": "significance",
    "expected_utility": "mbr",
    "likelihood": "perplexity",
    "mbr_decode": "mbr",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
