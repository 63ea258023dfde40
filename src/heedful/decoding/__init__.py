"""Model -> ids, and what people want of them. Each folder imports only from those above it:

    search      which token comes next: greedy, beam, drawn. Knows no model
    steps       what a model does in a search: the newest tokens in, the logits of the next out
    engines     requests in, hypotheses out: torch, CTranslate2, and which of them runs a model
    writing     texts in, texts out: the Translator, the Generator, long texts, work for several processes
    encoders    texts or images in; hidden words, labels or vectors out
    pipelines   all of it, called as in Hugging Face's Transformers 4

The names that programs use are also here. They are imported when they are first used, as those of `heedful` itself.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.decoding.classifier import Classifier
    from heedful.decoding.embedder import Embedder
    from heedful.decoding.engines.auto import open_engine
    from heedful.decoding.fill_mask import FillMask
    from heedful.decoding.generator import Generator
    from heedful.decoding.hf_pipelines import pipeline
    from heedful.decoding.search.request import Hypothesis, Request
    from heedful.decoding.search.settings import Sampling, SearchSettings
    from heedful.decoding.translator import Translator

__all__ = [
    "Classifier",
    "Embedder",
    "FillMask",
    "Generator",
    "Hypothesis",
    "Request",
    "Sampling",
    "SearchSettings",
    "Translator",
    "open_engine",
    "pipeline",
]

_WHERE = {
    "Classifier": "classifier",
    "Embedder": "embedder",
    "FillMask": "fill_mask",
    "Generator": "generator",
    "Hypothesis": "search.request",
    "Request": "search.request",
    "Sampling": "search.settings",
    "SearchSettings": "search.settings",
    "Translator": "translator",
    "open_engine": "engines.auto",
    "pipeline": "hf_pipelines",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
