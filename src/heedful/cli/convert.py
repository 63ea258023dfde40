"""`heedful convert`: read models of other programs, and write models for other programs."""

import re
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from heedful.cli.options import DATA, MODEL, OUTPUT
from heedful.cli.output import warnings_as_messages
from heedful.errors import UserError
from heedful.models.model_info import Precision, builtin_folders

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def convert(
    source: Annotated[Path, Parameter(group=DATA)],
    output: Annotated[Path, Parameter(name=["--output", "-o"], group=OUTPUT)],
    *,
    format: Annotated[Literal["heedful", "huggingface", "ctranslate2", "onnx"], Parameter(group=MODEL)],
    precision: Annotated[Precision | None, Parameter(group=MODEL)] = None,
) -> None:
    """Convert a model from Hugging Face to heedful, or to another program.

    Reads config.json, safetensors and tokenizer files, never a pickle, and runs
    no code of the folder. A model that cannot be represented exactly is refused,
    with the reason.

    Parameters
    ----------
    source
        A folder that save_pretrained wrote, or that was downloaded; or a run or a model folder of heedful.
    output
        The folder to write.
    format
        heedful (from Hugging Face), huggingface (transformers), ctranslate2, or onnx (ONNX Runtime).
    precision
        With --format heedful, of a heedful model: the precision of its weights. int8 takes a quarter of the space.
    """
    if not source.exists() and str(source) not in builtin_folders():
        remedy = (
            f". If it is a model of the Hugging Face Hub, download it: hf download {source} --local-dir {source.name}"
        )
        raise UserError(f"{source}: no such folder{remedy if _HUB_NAME.fullmatch(str(source)) else ''}")
    from heedful.interop.convert import convert_model

    with warnings_as_messages():
        folder = convert_model(source, output, format=format, precision=precision)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    print(f"{folder}: {', '.join(names)}")
