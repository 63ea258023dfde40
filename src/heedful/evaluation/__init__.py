"""Evaluate translations: BLEU and chrF with intervals, comparisons, perplexity, and consensus of several outputs.

    metrics           BLEU and chrF by sacreBLEU, and notes on what makes a score misleading
    significance      intervals by bootstrap, p-values by approximate randomisation
    evaluate          all of it for a test set, as `heedful evaluate` prints it
    perplexity        the likelihood of the references under a model
    mbr               choose one of several translations of a sentence, by what the others agree with

    >>> from heedful.evaluation import consensus
    >>> consensus([["a dog runs"], ["a dog runs"], ["the cat"]])
    ['a dog runs']

Public names are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.evaluation.evaluate import Evaluation, evaluate_texts
    from heedful.evaluation.mbr import agreement, consensus
    from heedful.evaluation.metrics import Score, bleu, chrf
    from heedful.evaluation.perplexity import Likelihood, likelihood
    from heedful.evaluation.significance import Comparison, compare, intervals

__all__ = [
    "Comparison",
    "Evaluation",
    "Likelihood",
    "Score",
    "agreement",
    "bleu",
    "chrf",
    "compare",
    "consensus",
    "evaluate_texts",
    "intervals",
    "likelihood",
]

_WHERE = {
    "Comparison": "significance",
    "Evaluation": "evaluate",
    "Likelihood": "perplexity",
    "Score": "metrics",
    "agreement": "mbr",
    "bleu": "metrics",
    "chrf": "metrics",
    "compare": "significance",
    "consensus": "mbr",
    "evaluate_texts": "evaluate",
    "intervals": "significance",
    "likelihood": "perplexity",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
