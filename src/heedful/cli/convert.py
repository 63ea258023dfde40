"""`heedful convert`: models of other programs in, models for other programs out."""

import sys
import warnings
from pathlib import Path
from typing import Literal

from heedful.models.model_info import Precision


def convert(
    source: Path,
    output: Path,
    *,
    to: Literal["heedful", "huggingface", "ctranslate2", "onnx"],
    precision: Precision | None = None,
) -> None:
    """Read a model of Hugging Face's, or write one of heedful's for another program.

    Reading takes config.json, safetensors and tokenizer files, never a
    pickle, and runs no code of the folder. What cannot be mapped exactly is
    refused, with the reason.

    Parameters
    ----------
    source
        A folder of Hugging Face's; or a run, or a model folder of heedful's.
    output
        The folder to write.
    to
        heedful reads Marian (OPUS-MT), Pegasus, BART, T5, BERT, GPT-2, Llama and ViT; huggingface is for
        transformers, ctranslate2 for CTranslate2, onnx for ONNX Runtime.
    precision
        With --to heedful, of a model of heedful's: the same model in such numbers. int8 takes a quarter of the space.
    """
    from heedful.interop.convert import convert_model

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        written = convert_model(source, output, to=to, precision=precision)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            print(f"heedful: {warning.message}", file=sys.stderr)
    print(f"{written}: {_contents(written)}")


def _contents(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return ", ".join(names)
