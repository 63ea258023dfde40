"""Settings of somebody else's config.json, read by an allow-list: what is not asked for is not believed.

A family asks for the keys that it understands. A key that would change what the model computes, and that heedful has
no place for, is refused by name; a key that nobody knows is named in a warning.

Labels, bends and heads in the words of Hugging Face's encoders: what BERT's and ViT's settings have in common.

generation_config.json: what Hugging Face keeps of searching, as far as it belongs to the model itself.

Some checkpoints say there, some in config.json, which ids open a text and which must never be written. How wide a beam
is and how long a text may get are the searcher's business, and stay theirs; what they ask for beyond that is said.

What a model is told before each text: "summarize: ". Hugging Face has it in config.json, by task or for all.
"""

import dataclasses
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.errors import UserError
from heedful.models.model_info import ANY_TASK, CONFIG
from heedful.text import SpecialIds, Tokenizers

# Names, training, searching: nothing here changes what a model computes.
HARMLESS = frozenset(
    {
        "_commit_hash", "_name_or_path", "_num_labels", "architectures", "attn_implementation", "author",
        "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward", "diversity_penalty", "do_sample", "dtype",
        "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
        "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing", "id2label",
        "keys_to_ignore_at_inference", "label2id", "language", "length_penalty", "license",
        "max_length", "min_length", "model_type", "name",
        "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels", "num_return_sequences",
        "output_attentions", "output_hidden_states", "output_past", "output_scores", "prefix", "problem_type",
        "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "save_step",
        "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
        "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p",
        "use_bfloat16", "use_cache",
    }
)  # fmt: skip


class HFConfig:
    """The values of one config.json; remembers which keys were asked for."""

    def __init__(self, values: Mapping[str, Any], *, where: str) -> None:
        self._values = values
        self._asked: set[str] = set()
        self.where = where

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number; without a default the key must be there."""
        value = self.get(name, default)
        if type(value) is not int:
            raise self.wrong(name, "a whole number")
        return value

    def whole_or_none(self, name: str) -> int | None:
        return None if self.get(name) is None else self.whole(name)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if type(value) not in (int, float):
            raise self.wrong(name, "a number")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self.get(name, default)
        if type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def choice(self, name: str, allowed: Mapping[str, str], default: str | None = None) -> str:
        """What heedful calls the given name: `allowed` maps theirs to ours."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in allowed:
            raise self.wrong(name, f"one of: {', '.join(allowed)}")
        return allowed[value]

    def require(self, name: str, *allowed: object) -> None:
        """Refuse any other value, since heedful computes only these; a key that is absent counts as the first."""
        value = self.get(name, allowed[0])
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise UserError(f"{self.where}: '{name}' is {value!r}, and heedful's model can only have {allowed[0]!r}")

    def same(self, one: str, other: str) -> None:
        """Refuse two sides that differ, where heedful has one number for both."""
        if (first := self.whole(one)) != (second := self.whole(other)):
            raise UserError(
                f"{self.where}: '{one}' is {first} and '{other}' is {second}; heedful's model has one number"
            )

    def architecture(self, *allowed: str) -> None:
        """Refuse a model with another head: its weights would have no place."""
        named = self.get("architectures")
        if isinstance(named, list) and named and not any(name in allowed for name in named):
            raise UserError(f"{self.where}: 'architectures' is {named}; heedful reads {', '.join(allowed)}")

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it stands there, unchecked; null counts as absent."""
        self._asked.add(name)
        value = self._values.get(name)
        return default if value is None else value

    def wrong(self, name: str, wanted: str) -> UserError:
        return UserError(f"{self.where}: '{name}' must be {wanted}, found {self._values.get(name)!r}")

    def warn_unread(self, also_harmless: Iterable[str] = ()) -> None:
        """Name the keys that nobody asked for and that say something."""
        known = self._asked | HARMLESS | set(also_harmless)
        unread = sorted(key for key, value in self._values.items() if key not in known and value not in (None, False))
        if unread:
            warnings.warn(f"{self.where}: not read, since heedful does not know it: {', '.join(unread)}", stacklevel=3)


# theirs -> ours
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
# ours -> theirs
ACTIVATIONS_THERE = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu", "swish": "silu"}

SEVERAL, ONE = "multi_label_classification", "single_label_classification"


def head_from(values: HFConfig, heads: Mapping[str, str], *, default: str) -> str:
    """The head that `architectures` names; `heads` maps their classes to ours."""
    names = values.get("architectures", [default])
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    if not isinstance(name, str) or name not in heads:
        raise UserError(f"{values.where}: 'architectures' is {names!r}; heedful reads {', '.join(heads)}")
    return heads[name]


def has_pooler(theirs: Collection[str], prefix: str) -> bool:
    """Whether one of a base model's tensors, with the prefix of its names or without, is the pooler's."""
    return any(f"{start}pooler.dense.{part}" in theirs for start in ("", prefix) for part in ("weight", "bias"))


def labels_from(values: HFConfig) -> tuple[str, ...]:
    """The names of the labels, in the order of their numbers: `id2label`, or as many as `num_labels` says."""
    named = values.get("id2label")
    if named is None:
        count = values.whole("num_labels", 2)
        if not 1 <= count <= 10**6:
            raise values.wrong("num_labels", "a number from 1 to 1,000,000")
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(named, dict) or not named:
        raise values.wrong("id2label", "a table of numbers and names")
    if any(str(number) not in named for number in range(len(named))):
        raise UserError(f"{values.where}: 'id2label' does not count from 0 to {len(named) - 1}")
    return tuple(str(named[str(number)]) for number in range(len(named)))


def multi_label_from(values: HFConfig, labels: Sequence[str]) -> bool:
    """Whether several labels may be right at once."""
    kind = values.get("problem_type", ONE)
    if kind not in (ONE, SEVERAL):
        raise UserError(f"{values.where}: 'problem_type' is {kind!r}; heedful's classifiers tell labels apart")
    return bool(kind == SEVERAL or len(labels) <= 1)


def labels_to(labels: Sequence[str], *, multi_label: bool) -> dict[str, Any]:
    """What their config.json says of the labels."""
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "problem_type": SEVERAL if multi_label else ONE,
    }


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


def special_ids_from(values: HFConfig, *, bos_id: int | None = None) -> SpecialIds:
    """Read the special ids of an encoder-decoder from config.json; `bos_id` stands before each source."""
    ends = values.get("eos_token_id")
    if isinstance(ends, list) and len(ends) == 1:
        ends = ends[0]
    if type(ends) is not int:
        raise values.wrong("eos_token_id", "one whole number")
    pad = values.whole("pad_token_id")
    # The second is what the first was called in the first BART folders.
    opens = _forces_bos(values, bos_id) or values.flag("force_bos_token_to_be_generated", False)
    start_id = values.whole("decoder_start_token_id", pad)
    special_ids = SpecialIds(
        pad_id=pad,
        unk_id=ends,  # config.json does not name it: the tokenizer does
        bos_id=start_id if bos_id is None else bos_id,
        eos_id=ends,
        source_bos=bos_id is not None,
        force_bos=bos_id is not None and opens,
        forbidden_ids=_forbidden(values.get("bad_words_ids"), values.where),
    )
    return with_start(special_ids, start_id)


def with_start(special_ids: SpecialIds, start_id: int) -> SpecialIds:
    """Let the decoder begin with this id, which is BOS in a model that has no BOS elsewhere."""
    if not special_ids.source_bos:
        return dataclasses.replace(special_ids, bos_id=start_id)
    return dataclasses.replace(special_ids, decoder_start_id=None if start_id == special_ids.bos_id else start_id)


def with_ids_of_tokenizer(special_ids: SpecialIds, tokenizers: Tokenizers | None) -> SpecialIds:
    """Fill in what only the tokenizer knows: its unknown token, its mask, and whether it adds BOS to a prompt."""
    if tokenizers is None:
        return special_ids
    own = tokenizers.target.special_ids
    return dataclasses.replace(special_ids, unk_id=own.unk_id, mask_id=own.mask_id, adds_bos=own.adds_bos)


def special_ids_to(special_ids: SpecialIds) -> dict[str, Any]:
    """The same in Hugging Face's words."""
    return {
        "pad_token_id": special_ids.pad_id,
        "bos_token_id": special_ids.bos_id,
        "eos_token_id": special_ids.eos_id,
        "decoder_start_token_id": special_ids.start_id,
        "forced_bos_token_id": special_ids.bos_id if special_ids.n_forced else None,
        "forced_eos_token_id": None,  # Hugging Face's default would write an end at the longest length
    }


def complete(config: Any, folder: Path, tokenizers: Tokenizers | None) -> Any:
    """What generation_config.json says of the marks: a first token that is given, ids that must not be written.

    Where there is such a file, Hugging Face takes them from there, and from config.json, in old folders, otherwise.
    """
    warn_of_search(folder)
    path = folder / GENERATION
    special_ids = with_ids_of_tokenizer(config.special_ids, tokenizers)
    if not path.is_file():
        return dataclasses.replace(config, special_ids=special_ids)
    values = HFConfig(read_json(path), where=str(path))
    ends = values.get("eos_token_id", special_ids.eos_id)
    if ends not in (special_ids.eos_id, [special_ids.eos_id]):
        raise UserError(
            f"{path}: 'eos_token_id' is {ends!r}, and {CONFIG} has {special_ids.eos_id}: heedful's "
            "encoder-decoders have one EOS id"
        )
    special_ids = dataclasses.replace(
        with_start(special_ids, values.whole("decoder_start_token_id", special_ids.start_id)),
        force_bos=special_ids.source_bos and _forces_bos(values, special_ids.bos_id),
        forbidden_ids=_forbidden(values.get("bad_words_ids"), str(path)),
    )
    return dataclasses.replace(config, special_ids=special_ids)


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
    special_ids: SpecialIds = config.special_ids
    longest = read_json(folder / CONFIG).get("max_position_embeddings", config.max_len)
    values = {
        **special_ids_to(special_ids),
        "bad_words_ids": [[number] for number in special_ids.forbidden_ids] or None,
        "max_length": min(512, longest),
        "num_beams": 5,
        "length_penalty": 1.0,
    }
    said = {name: value for name, value in values.items() if value is not None}
    write_json(folder / GENERATION, said)


def _forces_bos(values: HFConfig, bos_id: int | None) -> bool:
    """Whether the mark before each source is also the first token of each target."""
    given = values.get("forced_bos_token_id")
    if given is not None and given != bos_id:
        raise UserError(
            f"{values.where}: 'forced_bos_token_id' is {given!r}: heedful has a place for the mark before each source "
            f"only ({bos_id})"
        )
    return given is not None


def _forbidden(words: object, where: str) -> tuple[int, ...]:
    """Ids that may not be written. Hugging Face can also forbid several in a row, which no translation model does."""
    if words is None:
        return ()
    ids = [ids[0] for ids in words if isinstance(ids, list) and len(ids) == 1] if isinstance(words, list) else []
    if not isinstance(words, list) or len(ids) != len(words) or not all(type(number) is int for number in ids):
        raise UserError(f"{where}: 'bad_words_ids' must be a list of single ids, each in a list, found {words!r}")
    return tuple(sorted(set(ids)))


BY_TASK, FOR_ALL = "task_specific_params", "prefix"


def prefixes_from(values: HFConfig) -> dict[str, str]:
    """Task -> prefix; of the rest, how wide and how long to search, nothing is taken."""
    tasks = values.get(BY_TASK, {})
    if not isinstance(tasks, dict) or not all(isinstance(task, dict) for task in tasks.values()):
        raise values.wrong(BY_TASK, "a table of tasks")
    found = {ANY_TASK: values.get(FOR_ALL), **{name: task.get("prefix") for name, task in tasks.items()}}
    for name, prefix in found.items():
        if prefix is not None and not isinstance(prefix, str):
            raise values.wrong(BY_TASK if name in tasks else FOR_ALL, f"a text for '{name}'")
    return {name: prefix for name, prefix in found.items() if prefix}


def prefixes_to(prefixes: Mapping[str, str]) -> dict[str, Any]:
    """The same in Hugging Face's words."""
    tasks = {name: {"prefix": prefix} for name, prefix in prefixes.items() if name != ANY_TASK}
    said: dict[str, Any] = {BY_TASK: tasks} if tasks else {}
    return said | ({FOR_ALL: prefixes[ANY_TASK]} if ANY_TASK in prefixes else {})


def warn_of_prefixes(values: HFConfig) -> None:
    """For a family that has no place for them: name what its users must pass themselves."""
    if found := prefixes_from(values):
        said = ", ".join(f"{prefix!r} ({name})" for name, prefix in found.items())
        warnings.warn(
            f"{values.where}: its pipelines put words before each text, and this is not kept: {said}; "
            "pass it as prefix= to heedful.pipeline, or to heedful summarize as --prefix",
            stacklevel=3,
        )
