"""Convert a model from one program's format to another's; what `heedful convert` calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from heedful.atomic_io import atomic_folder
from heedful.config import read_json
from heedful.errors import UserError, invalid_choice
from heedful.models.model_info import CARD, CONFIG, Precision, find_model_folder

Format = Literal["heedful", "huggingface", "ctranslate2", "onnx"]


def convert_model(
    source: str | Path,
    output: str | Path,
    *,
    format: Format,
    precision: Precision | None = None,
) -> Path:
    """Write a model in another format and return the path of the new folder.

    `source` is a model folder, a run, or with format "heedful" a folder of Hugging Face's. `precision` is that of the
    weights in a model folder of heedful's. A model that the format cannot express is a UserError with the reason.
    """
    if format not in get_args(Format):
        raise invalid_choice("format", format, get_args(Format))
    if format == "heedful":
        return _to_heedful(Path(source), Path(output), precision)
    if precision is not None:
        raise UserError(f"--precision {precision} is only possible with --format heedful")
    return WRITERS[format](find_model_folder(source), Path(output))


def _to_heedful(source: Path, output: Path, precision: Precision | None) -> Path:
    from heedful.interop.huggingface.checkpoint import import_huggingface
    from heedful.models.model_io import load_model, save_model

    if precision is None:
        if source.is_dir() and (source / CONFIG).is_file() and "family" in read_json(source / CONFIG):
            raise UserError(f"{source} is already a model folder of heedful's; --precision int8 writes a smaller one")
        return import_huggingface(source, output)
    folder = find_model_folder(source)
    loaded = load_model(folder)
    card = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else ""
    return save_model(output, loaded.model, loaded.tokenizers, card=card, precision=precision)


def _to_huggingface(source: Path, output: Path) -> Path:
    from heedful.interop.huggingface.checkpoint import export_huggingface

    return export_huggingface(source, output)


def _to_ctranslate2(source: Path, output: Path) -> Path:
    from heedful.interop.ctranslate2.spec import ct2_model, write_model
    from heedful.models.model_io import load_model
    from heedful.text import save_tokenizers

    loaded = load_model(source)
    config, weights = ct2_model(loaded)
    with atomic_folder(output) as aside:
        write_model(config, weights, aside, tokenizers=loaded.tokenizers)
        if loaded.tokenizers is not None:
            save_tokenizers(aside, loaded.tokenizers)
    return output


def _to_onnx(source: Path, output: Path) -> Path:
    from heedful.interop.onnx import export_onnx

    return export_onnx(source, output)


WRITERS: dict[str, Callable[[Path, Path], Path]] = {
    "huggingface": _to_huggingface,
    "ctranslate2": _to_ctranslate2,
    "onnx": _to_onnx,
}
