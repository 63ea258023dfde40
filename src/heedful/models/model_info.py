"""What the card of a model says of its languages. Imports no torch: translating needs none.

The models that come with heedful: small, for everyday sentences, found by their languages. Imports no torch.

    src/heedful/builtin/en-fr/    a model folder in int8, with its card; -m en-fr names it, too

`benchmarks/tatoeba.py --ship` writes one.

Which folder a user means by a model, and how long a text it takes. Imports no torch: translating needs none.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heedful.config import read_json
from heedful.errors import UserError, did_you_mean

_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_LANGUAGES = re.compile(r"^language:\n((?:- .*\n?)+)", re.MULTILINE)


def card_languages(folder: Path) -> list[str]:
    """The codes that the head of the card lists, as they stand there: of a translating model source and target."""
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    head = _HEAD.match(text)
    listed = _LANGUAGES.search(head[1] + "\n") if head else None
    return [] if listed is None else [line[2:].strip().strip("\"'") for line in listed[1].splitlines()]


def source_language(folder: Path) -> str | None:
    """The language that a model reads, without script or region ("de"); None if its card does not name it."""
    languages = card_languages(folder)
    return languages[0].replace("_", "-").split("-")[0].lower() if languages else None


DEFAULT = "en-fr"


def builtin_models() -> dict[str, Path]:
    """ "en-fr" -> its folder, for each model that there is; there is one at least."""
    models = builtin_folders()
    if DEFAULT not in models:
        raise UserError(f"which model? {BUILTIN}: none came with this copy of heedful. Name one: -m runs/en-de")
    return models


def builtin_model(target: str | None = None, *, source: str | None = None) -> Path:
    """Return the folder of the built-in model between two languages; without any, of the one from English to French."""
    models = builtin_models()
    if target is None and source is None:
        return models[DEFAULT]
    pairs = {(name.split("-")[0], name.split("-")[1]): folder for name, folder in models.items()}
    for (from_, to), folder in pairs.items():
        if (source is None or source.lower() == from_) and (target is None or target.lower() == to):
            return folder
    codes = {code for pair in pairs for code in pair}
    asked = [("from", source)] * (source is not None) + [("into", target)] * (target is not None)
    hint = "".join(did_you_mean(str(code), codes) for _, code in asked if str(code).lower() not in codes)
    raise UserError(
        f"no built-in model translates {' '.join(f'{word} {code!r}' for word, code in asked)} "
        f"(built in: {', '.join(f'{from_} to {to}' for from_, to in pairs)}){hint}. "
        "Train or convert a model and name it with -m"
    )


def is_builtin(folder: Path) -> bool:
    return BUILTIN in folder.resolve().parents


CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"  # of a model folder
FORMAT = 2  # of config.json
BUILTIN = Path(__file__).resolve().parents[1] / "builtin"  # the models that come with heedful, by their languages
ADAPTER = "adapter_config.json"  # of a folder of peft's
Precision = Literal["float32", "float16", "int8"]  # of the weights in its file
SCALE = ".scale"  # the scales of an int8 matrix "name" stand beside it as "name.scale"

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

ANY_TASK = "any"  # in a model's `prefixes`: what is told whatever the task

# The families that read one text and write another.
ENCODER_DECODERS = ("seq2seq", "bart", "t5", "universal")


def builtin_folders() -> dict[str, Path]:
    """ "en-fr" -> its folder, for each model that came with this copy of heedful."""
    return {config.parent.name: config.parent for config in sorted(BUILTIN.glob(f"*-*/{CONFIG}"))}


def find_model_folder(path: str | Path) -> Path:
    """The model folder that a path means: itself, or of a run its best model, else its last.

    Where there is no such path, "fr-en" is the model of that name that comes with heedful.
    """
    path = Path(path)
    for folder in (path, path / "best", path / "average", path / "last"):
        if (folder / CONFIG).is_file():
            refuse_other_formats(folder)
            return folder
    if not path.exists():
        if str(path) in (builtin := builtin_folders()):
            return builtin[str(path)]
        ours = f", or name a model that comes with heedful: {', '.join(builtin)}" if builtin else ""
        raise UserError(f"{path}: no such folder; give that of a run, as heedful train makes it, or of a model{ours}")
    kind = explain_unsupported_folder(path)
    if kind is not None:
        raise UserError(f"{path}: {kind}")
    raise UserError(f"{path}: neither a model folder (there is no {CONFIG}) nor a run that has a model yet")


def refuse_other_formats(folder: Path) -> None:
    """Refuse the folder of a Hugging Face model or of an earlier heedful; the error says what to do with it."""
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
            f"{folder}: is a folder of Hugging Face's; read it first: heedful convert {folder} OUTPUT --format heedful"
        )
    if "family" not in values:
        raise UserError(f"{folder}: is not a model folder of heedful ({CONFIG} has no 'family')")


def explain_unsupported_folder(folder: Path) -> str | None:
    """What a folder holds in place of a model's weights, and what to do; None if that is not known."""
    if (folder / ADAPTER).is_file():
        return (
            f"holds an adapter ({ADAPTER}), which is a change to another model. Put both together where peft is "
            "installed, with merge_and_unload() and save_pretrained(FOLDER), and convert that folder"
        )
    gguf = min((path.name for path in folder.glob("*.gguf")), default=None)
    if gguf is not None:
        return (
            f"holds a model for llama.cpp ({gguf}), a format that heedful does not read. Get the folder that it was "
            f"made from, with {CONFIG} and {WEIGHTS}"
        )
    return None


def require_family(folder: Path, *wanted: str) -> None:
    """Refuse the model of another family, by its settings alone, and say what runs it.

    Settings that name no family that there is are left to whoever loads the model.
    """
    family = read_json(folder / CONFIG).get("family")
    if isinstance(family, str) and family in COMMANDS and family not in wanted:
        raise wrong_family(folder, family, *wanted)


def wrong_family(where: object, family: str, *wanted: str) -> UserError:
    names = " or ".join(f"'{name}'" for name in wanted)
    return UserError(
        f"{where}: is a model of the family '{family}', and this needs one of the family {names}; "
        f"use heedful {COMMANDS[family]}"
    )


@dataclass(frozen=True)
class SourceLimit:
    """How many source tokens a model takes, the end mark counted."""

    max_len: int
    is_hard: bool = False  # there is no position beyond: a learned table has a last row


def read_reach(folder: Path) -> SourceLimit:
    """The reach of the model in a folder, from its settings alone."""
    values = read_json(folder / CONFIG)
    max_len = values.get("max_len")
    if type(max_len) is not int or max_len < 1:
        raise UserError(f"{folder / CONFIG}: 'max_len' must be a whole number of at least 1, found {max_len!r}")
    special_ids = values.get("special_ids")
    if isinstance(special_ids, dict) and special_ids.get("source_bos") is True:
        max_len -= 1  # BOS stands before each source
    is_hard = values.get("positions") == "learned" or values.get("family") == "bart"
    return SourceLimit(max_len, is_hard=is_hard)


def read_prefixes(folder: Path) -> dict[str, str]:
    """What a model is told before a text, by task, from its settings alone; few models are."""
    found = read_json(folder / CONFIG).get("prefixes", {})
    if not isinstance(found, dict) or not all(isinstance(prefix, str) for prefix in found.values()):
        raise UserError(f"{folder / CONFIG}: 'prefixes' must be a table of tasks and strings, found {found!r}")
    return found
