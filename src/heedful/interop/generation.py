"""generation_config.json: what Hugging Face keeps of searching, as far as it belongs to the model itself.

Some checkpoints say there, some in config.json, which ids open a text and which must never be written. How wide a beam
is and how long a text may get are the searcher's business, and stay theirs; what they ask for beyond that is said.
"""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

from heedful.config import read_json
from heedful.errors import UserError
from heedful.interop.values import Values
from heedful.models.find import CONFIG
from heedful.models.marks import MarksConfig

GENERATION = "generation_config.json"

# Theirs -> the setting of heedful's searches, and the value that changes nothing.
SEARCH = {
    "length_penalty": ("length_penalty", 1),
    "no_repeat_ngram_size": ("no_repeat_ngram", 0),
    "repetition_penalty": ("repetition_penalty", 1),
    "min_length": ("min_len", 0),
}
# The same where `do_sample` is true.
DRAWING = {
    "temperature": ("sampling.temperature", 1),
    "top_k": ("sampling.top_k", 0),
    "top_p": ("sampling.top_p", 1),
}


def marks_from(values: Values, *, first_id: int | None = None) -> MarksConfig:
    """The ids that are not text, from config.json; `first_id` stands before each source."""
    ends = values.get("eos_token_id")
    if isinstance(ends, list) and len(ends) == 1:
        ends = ends[0]
    if type(ends) is not int:
        raise values.wrong("eos_token_id", "one whole number")
    pad = values.whole("pad_token_id")
    # The second is what the first was called in the first BART folders.
    opens = _opens(values, first_id) or values.flag("force_bos_token_to_be_generated", False)
    return MarksConfig(
        pad_id=pad,
        start_id=values.whole("decoder_start_token_id", pad),
        end_id=ends,
        first_id=first_id,
        opens_target=opens,
        forbidden=_forbidden(values.get("bad_words_ids"), values.where),
    )


def marks_to(marks: MarksConfig) -> dict[str, Any]:
    """The same in Hugging Face's words."""
    return {
        "pad_token_id": marks.pad_id,
        "bos_token_id": marks.start_id if marks.first_id is None else marks.first_id,
        "eos_token_id": marks.end_id,
        "decoder_start_token_id": marks.start_id,
        "forced_bos_token_id": marks.first_id if marks.n_opening else None,
        "forced_eos_token_id": None,  # Hugging Face's default would write an end at the longest length
    }


def complete(config: Any, folder: Path, tokenizers: object) -> Any:
    """What generation_config.json says of the marks: a first token that is given, ids that must not be written.

    Where there is such a file, Hugging Face takes them from there, and from config.json, in old folders, otherwise.
    """
    warn_of_search(folder)
    path = folder / GENERATION
    if not path.is_file():
        return config
    values, marks = Values(read_json(path), where=str(path)), config.marks
    ends = values.get("eos_token_id", marks.end_id)
    if ends not in (marks.end_id, [marks.end_id]):
        raise UserError(
            f"{path}: 'eos_token_id' is {ends!r}, and {CONFIG} has {marks.end_id}: a text has one end in heedful's "
            "encoder-decoders"
        )
    changed = dataclasses.replace(
        marks,
        opens_target=_opens(values, marks.first_id),
        start_id=values.whole("decoder_start_token_id", marks.start_id),
        forbidden=_forbidden(values.get("bad_words_ids"), str(path)),
    )
    if config.marks == changed:
        return config
    return dataclasses.replace(config, marks=changed)


def warn_of_search(folder: Path) -> None:
    """Name how Hugging Face would search or draw with this model, and the settings that make heedful do so."""
    path = folder / (GENERATION if (folder / GENERATION).is_file() else CONFIG)
    values = read_json(path)
    names = SEARCH | DRAWING if values.get("do_sample") is True else SEARCH
    asked = {
        theirs: values[theirs]
        for theirs, (_, neutral) in names.items()
        if type(values.get(theirs)) in (int, float) and values[theirs] != neutral
    }
    if asked:
        said = ", ".join(f"{theirs}={value}" for theirs, value in asked.items())
        ours = " ".join(f"{names[theirs][0]}={value}" for theirs, value in asked.items())
        warnings.warn(
            f"{path}: Hugging Face would write with {said}, and this is not kept; to do the same: --set {ours}",
            stacklevel=3,
        )


def write(config: Any, folder: Path) -> None:
    """How Hugging Face searches by default: as heedful does, as far as it can."""
    marks: MarksConfig = config.marks
    longest = read_json(folder / CONFIG).get("max_position_embeddings", config.max_len)
    values = {
        **marks_to(marks),
        "bad_words_ids": [[number] for number in marks.forbidden] or None,
        "max_length": min(512, longest),
        "num_beams": 5,
        "length_penalty": 1.0,
    }
    said = {name: value for name, value in values.items() if value is not None}
    (folder / GENERATION).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def _opens(values: Values, first_id: int | None) -> bool:
    """Whether the mark before each source is also the first token of each target."""
    given = values.get("forced_bos_token_id")
    if given is not None and given != first_id:
        raise UserError(
            f"{values.where}: 'forced_bos_token_id' is {given!r}: heedful has a place for the mark before each source "
            f"only ({first_id})"
        )
    return first_id is None or given is not None


def _forbidden(words: object, where: str) -> tuple[int, ...]:
    """Ids that may not be written. Hugging Face can also forbid several in a row, which no translation model does."""
    if words is None:
        return ()
    ids = [ids[0] for ids in words if isinstance(ids, list) and len(ids) == 1] if isinstance(words, list) else []
    if not isinstance(words, list) or len(ids) != len(words) or not all(type(number) is int for number in ids):
        raise UserError(f"{where}: 'bad_words_ids' must be a list of single ids, each in a list, found {words!r}")
    return tuple(sorted(set(ids)))
