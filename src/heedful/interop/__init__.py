"""Models in other programs' formats: Hugging Face's folders, CTranslate2, ONNX.

    convert         read a model in one format and write it in another; what `heedful convert` calls
    huggingface     read and write folders of `transformers`: config.json, safetensors, tokenizers
    ctranslate2     convert a model for the CTranslate2 engine and keep the result
    onnx            write ONNX graphs

A model that another program would compute differently raises a UserError with the reason. The names below are imported
when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.interop.convert import convert_model
    from heedful.interop.huggingface.checkpoint import export_huggingface, import_huggingface
    from heedful.interop.onnx import export_onnx

__all__ = ["convert_model", "export_huggingface", "export_onnx", "import_huggingface"]

_MODULES = {
    "convert_model": "convert",
    "export_huggingface": "huggingface.checkpoint",
    "export_onnx": "onnx",
    "import_huggingface": "huggingface.checkpoint",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
