"""The models that come with heedful: small, for everyday sentences, found by their languages. Imports no torch.

    src/heedful/builtin/en-fr/    a model folder in int8, with its card; -m en-fr names it, too

`benchmarks/tatoeba.py --ship` writes one.
"""

from pathlib import Path

from heedful.errors import UserError, one_of
from heedful.models.find import BUILTIN, builtin_folders

DEFAULT = "en-fr"


def builtin_models() -> dict[str, Path]:
    """ "en-fr" -> its folder, for each model that there is; there is one at least."""
    models = builtin_folders()
    if DEFAULT not in models:
        raise UserError(f"which model? {BUILTIN}: none came with this copy of heedful. Name one: -m runs/en-de")
    return models


def builtin_model(to: str | None = None) -> Path:
    """The model into a language; without one from English to French."""
    models = builtin_models()
    if to is None:
        return models[DEFAULT]
    by_target = {name.split("-")[1]: folder for name, folder in models.items()}
    if to.lower() not in by_target:
        raise one_of("--to, of the models that come with heedful", to, tuple(by_target))
    return by_target[to.lower()]


def is_builtin(folder: Path) -> bool:
    return BUILTIN in folder.resolve().parents
