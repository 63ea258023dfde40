"""heedful trains, runs, serves and shows Transformers.

>>> import heedful
>>> heedful.Translator.load("en-fr").translate(["Thank you!"])  # doctest: +SKIP
['Merci !']

Each public name is imported when it is first used, so that `import heedful` is fast and does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.hf_pipelines import pipeline
    from heedful.decoding.translator import Translator
    from heedful.insight.look import look
    from heedful.models.model_io import load_model, save_model
    from heedful.training.train import train

__version__ = "0.1.0"

__all__ = ["Translator", "UserError", "__version__", "load_model", "look", "pipeline", "save_model", "train"]

_WHERE = {
    "Translator": "heedful.decoding.translator",
    "load_model": "heedful.models.model_io",
    "look": "heedful.insight.look",
    "pipeline": "heedful.decoding.hf_pipelines",
    "save_model": "heedful.models.model_io",
    "train": "heedful.training.train",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'heedful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__  # for tab completion
