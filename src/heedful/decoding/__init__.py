"""Run models: translate, continue, classify, embed, and search with any engine.

    translator, generator                  texts in, texts out: encoder-decoder and decoder-only models
    classifier, embedder, fill_mask        labels, vectors and masked words of encoders
    hf_pipelines                           all of them, called as the pipelines of Hugging Face's Transformers 4
    segmentation, text_constraints, translation, decoding_stats, worker_pool, input_text, encoder_inputs
                                           what these classes are made of
    engines                                requests in, hypotheses out: torch, CTranslate2, and the choice between them
    steps                                  one decoding step of a model: newest tokens in, logits out
    search                                 greedy search, beam search, sampling; independent of any model

Each folder imports only from the folders below it in this list. Public names are imported when they are first used.

    >>> from heedful.decoding import SearchSettings
    >>> SearchSettings(beam=1).n_best
    1
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.decoding.classifier import Classifier
    from heedful.decoding.decoding_stats import DecodingStats
    from heedful.decoding.embedder import Embedder
    from heedful.decoding.engines.auto import open_engine, open_tokenizers
    from heedful.decoding.engines.base import Engine
    from heedful.decoding.fill_mask import FillMask
    from heedful.decoding.generator import Generation, Generator
    from heedful.decoding.hf_pipelines import pipeline
    from heedful.decoding.search.callback import BeamTrace, SearchCallback
    from heedful.decoding.search.request import Hypothesis, Request
    from heedful.decoding.search.settings import Sampling, SearchSettings
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.decoding.worker_pool import LoadSpec

__all__ = [
    "BeamTrace",
    "Classifier",
    "DecodingStats",
    "Embedder",
    "Engine",
    "FillMask",
    "Generation",
    "Generator",
    "Hypothesis",
    "LoadSpec",
    "Request",
    "Sampling",
    "SearchCallback",
    "SearchSettings",
    "Translation",
    "Translator",
    "open_engine",
    "open_tokenizers",
    "pipeline",
]

_WHERE = {
    "BeamTrace": "search.callback",
    "Classifier": "classifier",
    "DecodingStats": "decoding_stats",
    "Embedder": "embedder",
    "Engine": "engines.base",
    "FillMask": "fill_mask",
    "Generation": "generator",
    "Generator": "generator",
    "Hypothesis": "search.request",
    "LoadSpec": "worker_pool",
    "Request": "search.request",
    "Sampling": "search.settings",
    "SearchCallback": "search.callback",
    "SearchSettings": "search.settings",
    "Translation": "translation",
    "Translator": "translator",
    "open_engine": "engines.auto",
    "open_tokenizers": "engines.auto",
    "pipeline": "hf_pipelines",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
