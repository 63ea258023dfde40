"""The models that come with heedful: small, for everyday sentences, found by their languages. Imports no torch.

    src/heedful/builtin/en-fr/    a model folder in int8, with its card

`benchmarks/tatoeba.py --ship` writes one.
"""

from pathlib import Path

from heedful.errors import UserError, one_of
from heedful.models.find import CONFIG

FOLDER = Path(__file__).resolve().parents[1] / "builtin"
DEFAULT = "en-fr"


def builtin_models() -> dict[str, Path]:
    """ "en-fr" -> its folder, for each model that there is."""
    models = {path.parent.name: path.parent for path in sorted(FOLDER.glob(f"*-*/{CONFIG}"))}
    if DEFAULT not in models:
        raise UserError(f"which model? {FOLDER}: none came with this copy of heedful. Name one: -m runs/en-de")
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
    return FOLDER in folder.resolve().parents
