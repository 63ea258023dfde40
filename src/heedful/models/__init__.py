"""Models: token ids (or pixels) in, logits out. One file per family, and the model folder.

The public names are imported when they are first used, so that configs can be read without torch:

>>> from heedful.models import GptConfig
>>> GptConfig(vocab_size=50257).max_len
1024
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.models.bart import Bart
    from heedful.models.bert import Bert
    from heedful.models.configs import (
        BartConfig,
        BertConfig,
        GptConfig,
        PatternConfig,
        RotaryConfig,
        Seq2SeqConfig,
        T5Config,
        UniversalConfig,
        VitConfig,
    )
    from heedful.models.gpt import Gpt
    from heedful.models.model_info import builtin_models, find_model_folder
    from heedful.models.model_io import LoadedModel, load_model, save_model
    from heedful.models.seq2seq import Seq2Seq
    from heedful.models.t5 import T5
    from heedful.models.universal import Universal
    from heedful.models.vit import Vit

__all__ = [
    "T5",
    "Bart",
    "BartConfig",
    "Bert",
    "BertConfig",
    "Gpt",
    "GptConfig",
    "LoadedModel",
    "PatternConfig",
    "RotaryConfig",
    "Seq2Seq",
    "Seq2SeqConfig",
    "T5Config",
    "Universal",
    "UniversalConfig",
    "Vit",
    "VitConfig",
    "builtin_models",
    "find_model_folder",
    "load_model",
    "save_model",
]

_CONFIGS = [name for name in __all__ if name.endswith("Config")]
_WHERE = {
    **dict.fromkeys(_CONFIGS, "heedful.models.configs"),
    **{name: f"heedful.models.{name.lower()}" for name in ("Bart", "Bert", "Gpt", "Seq2Seq", "T5", "Universal", "Vit")},
    **dict.fromkeys(("builtin_models", "find_model_folder"), "heedful.models.model_info"),
    **dict.fromkeys(("LoadedModel", "load_model", "save_model"), "heedful.models.model_io"),
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'heedful.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
