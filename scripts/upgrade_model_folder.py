"""Write the config.json of model folders of format 1 anew, in format 2, and the settings inside their tokenizers.

    python scripts/upgrade_model_folder.py runs/en-de/best ...

Format 1 is that of heedful 0.1.0 up to November 2026. The folder gets a new manifest. Its weights and the
pieces of its tokenizers stay as they are.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from heedful.atomic_io import check_manifest, write_manifest
from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.errors import UserError
from heedful.models.model_info import CONFIG, FORMAT
from heedful.models.model_io import FAMILIES
from heedful.text import SpecialIds, TokenizerConfig
from heedful.text.sentencepiece_model import read_model
from heedful.text.sentencepiece_tokenizer import configured

TOKENIZER = {"symbols": "special_tokens", "normal_form": "unicode_form"}
ROTARY = {"first_len": "original_max_len", "low": "low_freq_factor", "high": "high_freq_factor"}


def upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """Rename the fields of a config.json of format 1 to those of format 2."""
    values = dict(values)
    marks, mask_id = values.pop("marks", None), values.pop("mask_id", None)
    if marks is not None:
        values["special_ids"] = config_to_dict(special_ids(marks, mask_id))
    if "exclusive" in values:
        values["multi_label"] = not values.pop("exclusive")
    if values.get("head") == "label_tokens":
        values["head"] = "tag"
    if "rotary" in values:
        values["rotary"] = {ROTARY.get(name, name): value for name, value in values["rotary"].items()}
    if values.get("pattern", {}).get("kind") == "strongest":
        values["pattern"] = {**values["pattern"], "kind": "top_k"}
    return {**values, "format": FORMAT}


def special_ids(marks: dict[str, Any], mask_id: int | None) -> SpecialIds:
    """Read format 1's `marks`, which had no id for unknown text: models with ids of their own get their EOS there."""
    start_id, eos_id, first_id = marks.get("start_id", 2), marks.get("end_id", 3), marks.get("first_id")
    pad_id = marks.get("pad_id", 0)
    return SpecialIds(
        pad_id=pad_id,
        unk_id=1 if (pad_id, start_id, eos_id) == (0, 2, 3) else eos_id,
        bos_id=start_id if first_id is None else first_id,
        eos_id=eos_id,
        mask_id=mask_id,
        decoder_start_id=None if first_id in (None, start_id) else start_id,
        source_bos=first_id is not None,
        force_bos=first_id is not None and marks.get("opens_target", True),
        extra_eos_ids=tuple(marks.get("other_ends", ())),
        forbidden_ids=tuple(marks.get("forbidden", ())),
    )


def upgrade(folder: Path) -> None:
    check_manifest(folder)
    path = folder / CONFIG
    values = read_json(path)
    if values.get("format") != 1:
        raise UserError(f"{path}: is of format {values.get('format')!r}; only format 1 needs to be written anew")
    values = upgraded(values)
    settings = {name: value for name, value in values.items() if name not in ("format", "family")}
    config = config_from_dict(FAMILIES[values["family"]][0], settings, where=str(path))
    values = {"format": FORMAT, "family": values["family"], **config_to_dict(config)}
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    for tokenizer in folder.glob("*.spm"):
        tokenizer.write_bytes(with_new_names(tokenizer.read_bytes(), where=str(tokenizer)))
    write_manifest(folder)


def with_new_names(model: bytes, *, where: str) -> bytes:
    """Rename heedful's settings inside a SentencePiece model, if it has any."""
    settings = read_model(model, where=where).settings
    if settings is None:
        return model
    values = {TOKENIZER.get(name, name): value for name, value in json.loads(settings).items()}
    return configured(model, config_from_dict(TokenizerConfig, values, where=where))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a model folder of format 1")
    for folder in parser.parse_args().folders:
        upgrade(folder)
        print(f"{folder}: format {FORMAT}")


if __name__ == "__main__":
    main()
