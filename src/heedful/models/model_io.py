"""Save and load the model folder, which holds everything that a model needs and no code.

    config.json (format, family, config) · model.safetensors · tokenizer files · README.md (the model card)
    · manifest.json (SHA-256 of each file)

Loading checks everything: first the hashes, then each field of the config, then the names and shapes of the weights
against the config. No pickle is ever read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.overrides import TorchFunctionMode

from heedful.atomic_io import MANIFEST, atomic_folder, check_manifest, explain_full_disk, write_json
from heedful.config import config_to_dict
from heedful.devices import torch_device
from heedful.errors import UserError
from heedful.models.bart import Bart
from heedful.models.bert import Bert
from heedful.models.configs import CONFIGS, ModelConfig, Seq2SeqConfig, UniversalConfig, read_config
from heedful.models.gpt import Gpt
from heedful.models.model_info import (
    CARD,
    CONFIG,
    FORMAT,
    WEIGHTS,
    Precision,
    find_model_folder,
    wrong_family,
)
from heedful.models.seq2seq import Seq2Seq
from heedful.models.t5 import T5
from heedful.models.universal import Universal
from heedful.models.vit import Vit
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

MODULES: dict[str, type[Model]] = {
    "seq2seq": Seq2Seq,
    "bart": Bart,
    "gpt": Gpt,
    "t5": T5,
    "universal": Universal,
    "bert": Bert,
    "vit": Vit,
}
# family -> (its config, its module)
FAMILIES: dict[str, tuple[type[Any], type[Model]]] = {name: (CONFIGS[name], MODULES[name]) for name in CONFIGS}

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, with its tokenizers."""

    family: str
    model: Model
    tokenizers: Tokenizers | None  # None: the model takes ids, not text
    folder: Path | None = None  # where it was read from

    def expect(self, kind: type[M]) -> M:
        """Return the model if it is of that class; otherwise raise a UserError that names the command that runs it."""
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
    """Write a model folder, completely or not at all, and return its path. An old model folder there is replaced.

    `precision` is that of the weights in the file, by default the model's own; int8 becomes float32 when it is read.
    `card` is the text of the model card.

    >>> import tempfile
    >>> from heedful.models import Gpt, GptConfig
    >>> model = Gpt(GptConfig(vocab_size=50, d_model=16, n_layers=1, n_heads=2, d_ff=32))
    >>> folder = save_model(tempfile.mkdtemp(), model, tokenizers=None)
    >>> load_model(folder).family
    'gpt'
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
    """Load the model of a folder, or of a run, in evaluation mode; a UserError names the file and what is wrong.

    `folder` may also be the name of a built-in model, such as "en-fr". On a CPU, float16 becomes float32, which is
    faster there, unless `as_stored` asks for the weights as they are in the file.
    """
    folder = Path(folder) if (Path(folder) / MANIFEST).is_file() else find_model_folder(folder)
    place = torch_device(device) if isinstance(device, str) else device
    _check_listed(folder, check_manifest(folder))
    family, config = read_config(folder)
    with torch.device("meta"), _NoRandomWeights():  # only shapes, no memory
        model = cast(Callable[[ModelConfig], Model], MODULES[family])(config)
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
    """Return the name of the family of a model class."""
    return next(name for name, (_, module) in FAMILIES.items() if issubclass(kind, module))


class _NoRandomWeights(TorchFunctionMode):
    """Skip normal_: loading replaces the weights, and the first call of normal_ on "meta" imports 800 modules (1 s)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.init.normal_:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _check_listed(folder: Path, listed: frozenset[str]) -> None:
    """Raise a UserError for files that will be read but are not in the manifest, and so are unchecked."""
    for name in (CONFIG, WEIGHTS, *TOKENIZER_FILES):
        if name not in listed and (name in (CONFIG, WEIGHTS) or (folder / name).exists()):
            raise UserError(f"{folder / name}: is not listed in {MANIFEST}; copy the folder again")


def check_vocabulary(folder: Path, config: ModelConfig, tokenizers: Tokenizers) -> None:
    """Raise a UserError for a tokenizer whose vocabulary does not fit the model's."""
    if isinstance(config, (Seq2SeqConfig, UniversalConfig)):
        sizes = {
            "source tokenizer": (tokenizers.source.vocab_size, config.source_vocab_size),
            "target tokenizer": (tokenizers.target.vocab_size, config.target_vocab_size),
        }
        for name, (n_pieces, vocab_size) in sizes.items():
            if n_pieces != vocab_size:
                raise UserError(f"{folder}: the {name} has {n_pieces:,} pieces, but {CONFIG} has {vocab_size:,}")
    else:  # the embedding may have more rows: public models round its size up
        n_pieces, vocab_size = tokenizers.source.vocab_size, getattr(config, "vocab_size", 0)
        if n_pieces > vocab_size:
            raise UserError(f"{folder}: the tokenizer has {n_pieces:,} pieces, but {CONFIG} has {vocab_size:,}")
