"""The model folder: everything that a model needs, and nothing that could run.

    config.json (family, numbers, format version) · model.safetensors · tokenizer files · README.md (the card)
    · manifest.json (SHA-256 of each file)

Loading trusts nothing: the hashes first, then the settings by an allow-list, then names and shapes of the weights
against what the settings ask for. No pickle is ever read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.overrides import TorchFunctionMode

from heedful.atomic_io import MANIFEST, atomic_folder, check_manifest, explain_full_disk, write_json
from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.devices import torch_device
from heedful.errors import UserError, invalid_choice
from heedful.models.bart import Bart, BartConfig
from heedful.models.bert import Bert, BertConfig
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_info import (
    CARD,
    CONFIG,
    FORMAT,
    WEIGHTS,
    Precision,
    find_model_folder,
    refuse_other_formats,
    wrong_family,
)
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import Universal, UniversalConfig
from heedful.models.vit import Vit, VitConfig
from heedful.models.weights import in_precision, read_weights, weights_of
from heedful.text import Tokenizers, has_tokenizers, load_tokenizers, save_tokenizers
from heedful.text.tokenizer_files import TOKENIZER_FILES

__all__ = [
    "CARD",
    "CONFIG",
    "WEIGHTS",
    "LoadedModel",
    "find_model_folder",
    "load_model",
    "read_weights",
    "save_model",
    "weights_of",
]

Model = Seq2Seq | Bart | Gpt | T5 | Universal | Bert | Vit

# family -> (its settings, its module)
FAMILIES: dict[str, tuple[type[Any], type[Model]]] = {
    "seq2seq": (Seq2SeqConfig, Seq2Seq),
    "bart": (BartConfig, Bart),
    "gpt": (GptConfig, Gpt),
    "t5": (T5Config, T5),
    "universal": (UniversalConfig, Universal),
    "bert": (BertConfig, Bert),
    "vit": (VitConfig, Vit),
}

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class LoadedModel:
    family: str
    model: Model
    tokenizers: Tokenizers | None  # None: the model takes ids only
    folder: Path | None = None  # where it was read

    def expect(self, kind: type[M]) -> M:
        """The model, if it is of that family; otherwise a UserError that says which command runs it."""
        model: nn.Module = self.model
        if not isinstance(model, kind):
            raise wrong_family(self.folder or "this model", self.family, family_of(kind))
        return model


def save_model(
    folder: str | Path,
    model: Model,
    tokenizers: Tokenizers | None,
    *,
    card: str = "",
    precision: Precision | None = None,
) -> Path:
    """Write the folder aside and put it in place when it is complete; an older one of that name is replaced.

    `precision`: that of the numbers in the file, by default the model's own. Of int8 float32 is made when it is read.
    """
    folder = Path(folder)
    values = {"format": FORMAT, "family": family_of(type(model)), **config_to_dict(model.config)}
    weights = in_precision(weights_of(model), precision)
    try:
        with atomic_folder(folder) as aside:
            write_json(aside / CONFIG, values)
            save_file(weights, aside / WEIGHTS)
            if tokenizers is not None:
                save_tokenizers(aside, tokenizers)
            if card:
                (aside / CARD).write_text(card, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        needed = sum(tensor.nbytes for tensor in weights.values())
        raise explain_full_disk(error, folder, needed=needed) from None
    return folder


def load_model(folder: str | Path, *, device: str | torch.device = "cpu", as_stored: bool = False) -> LoadedModel:
    """The model of a folder (or a run's best), ready to run, or a UserError that names the file and what is wrong.

    Float16 becomes float32 on a processor, which is slow in it, unless the model is wanted `as_stored`, to be written.
    """
    folder = Path(folder) if (Path(folder) / MANIFEST).is_file() else find_model_folder(folder)
    place = torch_device(device) if isinstance(device, str) else device
    _check_listed(folder, check_manifest(folder))
    refuse_other_formats(folder)
    family, settings = _read_config(folder / CONFIG)
    kind, module = FAMILIES[family]
    config = config_from_dict(kind, settings, where=str(folder / CONFIG))
    with torch.device("meta"), _WithoutDrawing():  # the shapes, without memory
        model = module(config)
    weights = read_weights(folder / WEIGHTS, expected=weights_of(model), device=place)
    if place.type == "cpu" and not as_stored:
        weights = {n: weight.float() if weight.dtype == torch.float16 else weight for n, weight in weights.items()}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie()
    tokenizers = load_tokenizers(folder) if has_tokenizers(folder) else None
    if tokenizers is not None:
        check_vocabulary(folder, config, tokenizers)
    return LoadedModel(family, model.eval(), tokenizers, folder)


def family_of(kind: type[nn.Module]) -> str:
    return next(name for name, (_, module) in FAMILIES.items() if issubclass(kind, module))


class _WithoutDrawing(TorchFunctionMode):
    """Leaves out normal_: nobody reads its numbers, and its first call on "meta" imports 800 modules (a second)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.init.normal_:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _read_config(path: Path) -> tuple[str, dict[str, Any]]:
    values = read_json(path)
    version, family = values.pop("format", None), values.pop("family", None)
    if type(version) is not int or version != FORMAT:
        raise UserError(f"{path}: is of format {version!r}, and this heedful reads format {FORMAT}; update heedful")
    if not isinstance(family, str) or family not in FAMILIES:
        raise invalid_choice(f"{path}: 'family'", family, FAMILIES)
    return family, values


def _check_listed(folder: Path, listed: frozenset[str]) -> None:
    """Whatever is read must be in the manifest: a file laid beside it would be believed unseen."""
    for name in (CONFIG, WEIGHTS, *TOKENIZER_FILES):
        if name not in listed and (name in (CONFIG, WEIGHTS) or (folder / name).exists()):
            raise UserError(f"{folder / name}: is not listed in {MANIFEST}; copy the folder again")


def check_vocabulary(folder: Path, config: Any, tokenizers: Tokenizers) -> None:
    """Refuse a tokenizer whose ids the model has no rows for."""
    if isinstance(config, (Seq2SeqConfig, UniversalConfig)):
        sizes = {
            "source tokenizer": (tokenizers.source.vocab_size, config.source_vocab_size),
            "target tokenizer": (tokenizers.target.vocab_size, config.target_vocab_size),
        }
        for which, (found, wanted) in sizes.items():
            if found != wanted:
                raise UserError(f"{folder}: the {which} has {found:,} pieces, but {CONFIG} says {wanted:,}")
    else:  # a table may have spare rows: public models round its size up
        found, wanted = tokenizers.source.vocab_size, getattr(config, "vocab_size", 0)
        if found > wanted:
            raise UserError(f"{folder}: the tokenizer has {found:,} pieces, but {CONFIG} says {wanted:,}")
