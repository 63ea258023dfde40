"""What can be known of a model without torch: its folder, its family, its card, and the limits in its config.

Built-in models are small models for everyday sentences in the package itself: model folders in int8, such as
`src/heedful/builtin/en-fr`. `-m en-fr` names one, and `benchmarks/quality/tatoeba.py --ship` writes one.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heedful.config import read_json
from heedful.errors import UserError, did_you_mean

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"  # the files of a model folder
FORMAT = 2  # of config.json
ADAPTER = "adapter_config.json"  # of a folder that peft wrote
Precision = Literal["float32", "float16", "int8"]  # of the weights in a file
SCALE = ".scale"  # the scales of an int8 matrix "name" are the tensor "name.scale"

# family -> the commands that run it
COMMANDS = {
    "seq2seq": "translate",
    "gpt": "generate",
    "bert": "fill, classify or embed",
    "bart": "translate or summarize",
    "t5": "translate or summarize",
    "vit": "classify or embed",
    "universal": "translate",
}
ENCODER_DECODERS = ("seq2seq", "bart", "t5", "universal")
ANY_TASK = "any"  # in a model's `prefixes`: the prefix for every task

BUILTIN = Path(__file__).resolve().parents[1] / "builtin"
DEFAULT = "en-fr"


# Folders


def find_model_folder(path: str | Path) -> Path:
    """Find the model folder for a path: the folder itself, or the best model of a run, else its average or last one.

    If the path does not exist, it may be the name of a built-in model, such as "fr-en".
    """
    path = Path(path)
    for folder in (path, path / "best", path / "average", path / "last"):
        if (folder / CONFIG).is_file():
            refuse_other_formats(folder)
            return folder
    if not path.exists():
        if str(path) in (builtin := builtin_folders()):
            return builtin[str(path)]
        names = f", or name a built-in model: {', '.join(builtin)}" if builtin else ""
        raise UserError(f"{path}: no such folder; give the folder of a run of heedful train, or of a model{names}")
    reason = explain_unsupported_folder(path)
    if reason is not None:
        raise UserError(f"{path}: {reason}")
    raise UserError(f"{path}: is neither a model folder (it has no {CONFIG}) nor a run that has saved a model")


def refuse_other_formats(folder: Path) -> None:
    """Raise a UserError for the folder of a Hugging Face model or of an earlier heedful; it names the remedy."""
    try:
        values = read_json(folder / CONFIG)
    except UserError:  # missing or damaged: the error comes when the model is loaded
        return
    version = values.get("format")
    if "family" in values and type(version) is int and version < FORMAT:
        raise UserError(
            f"{folder}: was written by an earlier heedful, in format {version}, and this one reads format {FORMAT}: "
            "write it anew by the command that made it (heedful train, heedful convert), or with "
            "scripts/upgrade_model_folder.py from heedful's repository"
        )
    if "model_type" in values:
        raise UserError(
            f"{folder}: is a Hugging Face model; convert it first: heedful convert {folder} OUTPUT --format heedful"
        )
    if "family" not in values:
        raise UserError(f"{folder}: is not a model folder of heedful ({CONFIG} has no 'family')")


def explain_unsupported_folder(folder: Path) -> str | None:
    """Return what a folder without config.json holds instead of a model, and what to do; None if it is unknown."""
    if (folder / ADAPTER).is_file():
        return (
            f"holds an adapter ({ADAPTER}), which changes another model. Merge the two with peft's merge_and_unload() "
            "and save_pretrained(FOLDER), then convert that folder"
        )
    gguf = min((path.name for path in folder.glob("*.gguf")), default=None)
    if gguf is not None:
        return (
            f"holds a model for llama.cpp ({gguf}), a format that heedful does not read. Get the folder that it was "
            f"made from, with {CONFIG} and {WEIGHTS}"
        )
    return None


def require_family(folder: Path, *families: str) -> None:
    """Raise a UserError for a model of another family; it names the command that runs this one. Reads config.json only.

    An unknown family raises no error here, because loading the model gives a better one.
    """
    family = read_json(folder / CONFIG).get("family")
    if isinstance(family, str) and family in COMMANDS and family not in families:
        raise wrong_family(folder, family, *families)


def wrong_family(where: object, family: str, *expected: str) -> UserError:
    """Build the error for a model of another family than the expected ones."""
    names = " or ".join(f"'{name}'" for name in expected)
    return UserError(
        f"{where}: is a model of the family '{family}', but this needs the family {names}; "
        f"use heedful {COMMANDS[family]}"
    )


# Cards

_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_LANGUAGES = re.compile(r"^language:\n((?:- .*\n?)+)", re.MULTILINE)


def card_languages(folder: Path) -> list[str]:
    """Return the language codes in the head of a model card; of a translation model, source and target."""
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    head = _HEAD.match(text)
    languages = _LANGUAGES.search(head[1] + "\n") if head else None
    return [] if languages is None else [line[2:].strip().strip("\"'") for line in languages[1].splitlines()]


def source_language(folder: Path) -> str | None:
    """Return the language that a model reads, without script or region ("de"); None if its card does not name it."""
    languages = card_languages(folder)
    return languages[0].replace("_", "-").split("-")[0].lower() if languages else None


# Built-in models


def builtin_folders() -> dict[str, Path]:
    """Return the folders of the built-in models by their names, such as "en-fr"; there may be none."""
    return {config.parent.name: config.parent for config in sorted(BUILTIN.glob(f"*-*/{CONFIG}"))}


def builtin_models() -> dict[str, Path]:
    """Return the folders of the built-in models by their names; a UserError if this copy of heedful has none."""
    models = builtin_folders()
    if DEFAULT not in models:
        raise UserError(f"name a model, such as -m runs/en-de: no built-in model is in {BUILTIN}")
    return models


def builtin_model(target: str | None = None, *, source: str | None = None) -> Path:
    """Return the folder of the built-in model between two languages; without any, of the one from English to French.

    >>> builtin_model("en").name
    'fr-en'
    """
    models = builtin_models()
    if target is None and source is None:
        return models[DEFAULT]
    pairs = {(name.split("-")[0], name.split("-")[1]): folder for name, folder in models.items()}
    for (from_, to), folder in pairs.items():
        if (source is None or source.lower() == from_) and (target is None or target.lower() == to):
            return folder
    codes = {code for pair in pairs for code in pair}
    expected = [("from", source)] * (source is not None) + [("into", target)] * (target is not None)
    hint = "".join(did_you_mean(str(code), codes) for _, code in expected if str(code).lower() not in codes)
    raise UserError(
        f"no built-in model translates {' '.join(f'{word} {code!r}' for word, code in expected)} "
        f"(built in: {', '.join(f'{from_} to {to}' for from_, to in pairs)}){hint}. "
        "Train or convert a model and name it with -m"
    )


def is_builtin(folder: Path) -> bool:
    """Return whether a folder is that of a built-in model."""
    return BUILTIN in folder.resolve().parents


# Limits


@dataclass(frozen=True)
class SourceLimit:
    """How many source tokens a model takes, EOS included."""

    max_len: int
    is_hard: bool = False  # longer texts are impossible: a table of learned positions has a last row


def read_source_limit(folder: Path) -> SourceLimit:
    """Read the limit of the encoder-decoder in a folder from its config.json."""
    from heedful.models.configs import VitConfig, read_config  # not needed for --help

    family, config = read_config(folder)
    if isinstance(config, VitConfig):
        raise wrong_family(folder, family, *ENCODER_DECODERS)
    return SourceLimit(config.max_len - config.special_ids.n_source_prefix, is_hard=config.has_learned_positions)


def read_prefixes(folder: Path) -> dict[str, str]:
    """Read the text that a model expects before each input, by task, from its config.json; few models have any."""
    from heedful.models.configs import read_config  # not needed for --help

    _, config = read_config(folder)
    return dict(getattr(config, "prefixes", {}))
