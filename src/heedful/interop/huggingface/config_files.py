"""Read and write what all model types have in common in config.json and generation_config.json.

`HFConfig` reads a config.json by an allow-list: a model type reads the keys that it knows, rejects values that would
change the computation, and `warn_unused` lists the keys that were not read.

The rest is about activations, heads and labels, special ids, search settings, and prefixes of tasks ("summarize: ").
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

GENERATION = "generation_config.json"

# Keys about names, training and search. They do not change what a model computes.
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
    """The values of one config.json, and which of them have been read. A value of null counts as absent.

    >>> values = HFConfig({"d_model": 512, "fancy": 1}, where="config.json")
    >>> values.get_int("d_model"), values.get_float("dropout", 0.1)
    (512, 0.1)
    >>> values.get_int("n_layers")
    Traceback (most recent call last):
        ...
    heedful.errors.UserError: config.json: 'n_layers' must be a whole number, found None
    """

    def __init__(self, values: Mapping[str, Any], *, where: str) -> None:
        self._values = values
        self._used: set[str] = set()
        self.where = where

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value unchecked, and note that it has been read."""
        self._used.add(name)
        value = self._values.get(name)
        return default if value is None else value

    def get_int(self, name: str, default: int | None = None) -> int:
        """Return a whole number; without a default the key is required."""
        value = self.get(name, default)
        if type(value) is not int:
            raise self.error(name, "a whole number")
        return value

    def get_optional_int(self, name: str) -> int | None:
        return None if self.get(name) is None else self.get_int(name)

    def get_float(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if type(value) not in (int, float):
            raise self.error(name, "a number")
        return float(value)

    def get_bool(self, name: str, default: bool | None = None) -> bool:
        value = self.get(name, default)
        if type(value) is not bool:
            raise self.error(name, "true or false")
        return value

    def get_choice(self, name: str, allowed: Mapping[str, str], default: str | None = None) -> str:
        """Return heedful's name for a value; `allowed` maps Hugging Face's names to heedful's."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in allowed:
            raise self.error(name, f"one of: {', '.join(allowed)}")
        return allowed[value]

    def require(self, name: str, *allowed: object) -> None:
        """Raise a UserError for any other value: heedful supports only these. An absent key has the first one."""
        value = self.get(name, allowed[0])
        if not any(type(value) is type(item) and value == item for item in allowed):
            raise UserError(f"{self.where}: '{name}' is {value!r}, but heedful's model supports only {allowed[0]!r}")

    def require_equal(self, name: str, other: str) -> None:
        """Raise a UserError if two sizes differ, of encoder and decoder, for which heedful has one setting."""
        if (first := self.get_int(name)) != (second := self.get_int(other)):
            raise UserError(
                f"{self.where}: '{name}' is {first} and '{other}' is {second}; heedful's model has one number for both"
            )

    def require_architecture(self, *allowed: str) -> None:
        """Raise a UserError for a model with another head, whose weights would have no place."""
        names = self.get("architectures")
        if isinstance(names, list) and names and not any(name in allowed for name in names):
            raise UserError(f"{self.where}: 'architectures' is {names}; heedful reads {', '.join(allowed)}")

    def error(self, name: str, expected: str) -> UserError:
        """Return the error for a value of another kind than expected."""
        return UserError(f"{self.where}: '{name}' must be {expected}, found {self._values.get(name)!r}")

    def warn_unused(self, also_harmless: Iterable[str] = ()) -> None:
        """Warn of keys that were not read, unless they are known to be harmless or are null or false."""
        known = self._used | HARMLESS | set(also_harmless)
        unused = sorted(key for key, value in self._values.items() if key not in known and value not in (None, False))
        if unused:
            warnings.warn(
                f"{self.where}: heedful does not know these settings and ignores them: {', '.join(unused)}",
                stacklevel=3,
            )


# Hugging Face's names of activations -> heedful's
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
# The same for feed-forward networks with a gate.
GATED_ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}


def hf_activation(activation: str, names: Mapping[str, str] = ACTIVATIONS) -> str:
    """Return Hugging Face's name of an activation: the first in the table."""
    return next(theirs for theirs, ours in names.items() if ours == activation)


MULTI_LABEL, SINGLE_LABEL = "multi_label_classification", "single_label_classification"


def read_head(values: HFConfig, heads: Mapping[str, str], *, default: str) -> str:
    """Return the head that `architectures` names; `heads` maps Hugging Face's classes to heedful's heads."""
    names = values.get("architectures", [default])
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    if not isinstance(name, str) or name not in heads:
        raise UserError(f"{values.where}: 'architectures' is {names!r}; heedful reads {', '.join(heads)}")
    return heads[name]


def has_pooler(names: Collection[str], prefix: str) -> bool:
    """Return whether a pooler is among the tensors of a base model, with or without the prefix of their names."""
    return any(f"{start}pooler.dense.{part}" in names for start in ("", prefix) for part in ("weight", "bias"))


def read_labels(values: HFConfig) -> tuple[str, ...]:
    """Return the names of the labels in the order of their numbers, from `id2label` or `num_labels`."""
    names = values.get("id2label")
    if names is None:
        count = values.get_int("num_labels", 2)
        if not 1 <= count <= 10**6:
            raise values.error("num_labels", "a number from 1 to 1,000,000")
        return tuple(f"LABEL_{index}" for index in range(count))
    if not isinstance(names, dict) or not names:
        raise values.error("id2label", "a table of numbers and names")
    if any(str(index) not in names for index in range(len(names))):
        raise UserError(f"{values.where}: 'id2label' does not count from 0 to {len(names) - 1}")
    return tuple(str(names[str(index)]) for index in range(len(names)))


def read_multi_label(values: HFConfig, labels: Sequence[str]) -> bool:
    """Return whether any number of labels can apply to an example, instead of exactly one."""
    kind = values.get("problem_type", SINGLE_LABEL)
    if kind not in (SINGLE_LABEL, MULTI_LABEL):
        raise UserError(
            f"{values.where}: 'problem_type' is {kind!r}; heedful's classifiers have {SINGLE_LABEL} and {MULTI_LABEL}"
        )
    return bool(kind == MULTI_LABEL or len(labels) <= 1)


def write_labels(labels: Sequence[str], *, multi_label: bool) -> dict[str, Any]:
    """Return the keys of config.json for the labels."""
    if not labels:
        return {}
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
        "problem_type": MULTI_LABEL if multi_label else SINGLE_LABEL,
    }


def read_eos_ids(values: HFConfig, default: int | None = None, *, several: bool) -> list[int]:
    """Return the ids that end a text, the main one first. More than one is an error unless `several` is true."""
    ids = values.get("eos_token_id", default)
    ids = ids if isinstance(ids, list) else [ids]
    if not ids or any(type(id) is not int for id in ids) or (len(ids) > 1 and not several):
        raise values.error("eos_token_id", "an id or a list of ids" if several else "one whole number")
    return ids


def read_special_ids(values: HFConfig, *, bos_id: int | None = None) -> SpecialIds:
    """Return the special ids of an encoder-decoder, from config.json. `bos_id`: the id before each source, if any."""
    [eos_id] = read_eos_ids(values, several=False)
    pad_id = values.get_int("pad_token_id")
    start_id = values.get_int("decoder_start_token_id", pad_id)
    # The first BART folders have the older of the two keys.
    forced = _forces_bos(values, bos_id) or values.get_bool("force_bos_token_to_be_generated", False)
    special_ids = SpecialIds(
        pad_id=pad_id,
        unk_id=eos_id,  # config.json does not have it; the tokenizer does
        bos_id=start_id if bos_id is None else bos_id,
        eos_id=eos_id,
        source_bos=bos_id is not None,
        force_bos=bos_id is not None and forced,
        forbidden_ids=_read_forbidden_ids(values),
    )
    return _with_start(special_ids, start_id)


def write_special_ids(special_ids: SpecialIds) -> dict[str, Any]:
    """Return the keys of config.json for the special ids of an encoder-decoder."""
    return {
        "pad_token_id": special_ids.pad_id,
        "bos_token_id": special_ids.bos_id,
        "eos_token_id": special_ids.eos_id,
        "decoder_start_token_id": special_ids.start_id,
        "forced_bos_token_id": special_ids.bos_id if special_ids.n_forced else None,
        "forced_eos_token_id": None,  # Hugging Face's default ends every text that reaches its maximum length
    }


def with_ids_of_tokenizer(special_ids: SpecialIds, tokenizers: Tokenizers | None) -> SpecialIds:
    """Fill in what only the tokenizer has: the unknown token, the mask, and whether a prompt begins with BOS."""
    if tokenizers is None:
        return special_ids
    own = tokenizers.target.special_ids
    return dataclasses.replace(special_ids, unk_id=own.unk_id, mask_id=own.mask_id, adds_bos=own.adds_bos)


def read_generation_config(config: Any, folder: Path, tokenizers: Tokenizers | None) -> Any:
    """Return an encoder-decoder's config with the special ids of generation_config.json and of the tokenizer.

    Like `transformers`, take from generation_config.json, if there is one, the forced BOS, the decoder's start and the
    forbidden ids; old folders have them in config.json. A warning names search settings that heedful does not keep.
    """
    warn_of_search_settings(folder)
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
        _with_start(special_ids, values.get_int("decoder_start_token_id", special_ids.start_id)),
        force_bos=special_ids.source_bos and _forces_bos(values, special_ids.bos_id),
        forbidden_ids=_read_forbidden_ids(values),
    )
    return dataclasses.replace(config, special_ids=special_ids)


def write_generation_config(config: Any, folder: Path) -> None:
    """Write generation_config.json for an encoder-decoder: its special ids, and heedful's defaults for a search."""
    special_ids: SpecialIds = config.special_ids
    longest = read_json(folder / CONFIG).get("max_position_embeddings", config.max_len)
    values = {
        **write_special_ids(special_ids),
        "bad_words_ids": [[id] for id in special_ids.forbidden_ids] or None,
        "max_length": min(512, longest),
        "num_beams": 5,
        "length_penalty": 1.0,
    }
    write_json(folder / GENERATION, {name: value for name, value in values.items() if value is not None})


# Hugging Face's search settings -> heedful's, and the value that has no effect
SEARCH_SETTINGS = {
    "length_penalty": ("length_penalty", 1),
    "no_repeat_ngram_size": ("no_repeat_ngram", 0),
    "repetition_penalty": ("repetition_penalty", 1),
    "min_length": ("min_len", 0),
}
# The same for settings that count only if `do_sample` is true.
SAMPLING_SETTINGS = {
    "temperature": ("sampling.temperature", 1),
    "top_k": ("sampling.top_k", 0),
    "top_p": ("sampling.top_p", 1),
}


def warn_of_search_settings(folder: Path) -> None:
    """Warn of search settings that a checkpoint has and heedful does not keep, with the --set that has their effect."""
    path = folder / (GENERATION if (folder / GENERATION).is_file() else CONFIG)
    values = read_json(path)
    names = SEARCH_SETTINGS | SAMPLING_SETTINGS if values.get("do_sample") is True else SEARCH_SETTINGS
    active = {
        name: values[name]
        for name, (_, neutral) in names.items()
        if type(values.get(name)) in (int, float) and values[name] != neutral
    }
    if active:
        theirs = ", ".join(f"{name}={value}" for name, value in active.items())
        ours = " ".join(f"{names[name][0]}={value}" for name, value in active.items())
        warnings.warn(
            f"{path}: Hugging Face would search with {theirs}; heedful does not keep this. For the same search: "
            f"--set {ours}",
            stacklevel=3,
        )


def _with_start(special_ids: SpecialIds, start_id: int) -> SpecialIds:
    """Let the decoder start with this id. It is BOS in a model that has no BOS elsewhere."""
    if not special_ids.source_bos:
        return dataclasses.replace(special_ids, bos_id=start_id)
    return dataclasses.replace(special_ids, decoder_start_id=None if start_id == special_ids.bos_id else start_id)


def _forces_bos(values: HFConfig, bos_id: int | None) -> bool:
    """Return whether the BOS before each source is also the forced first token of each target."""
    forced = values.get("forced_bos_token_id")
    if forced is not None and forced != bos_id:
        raise UserError(
            f"{values.where}: 'forced_bos_token_id' is {forced!r}; heedful can force only the BOS before each "
            f"source ({bos_id})"
        )
    return forced is not None


def _read_forbidden_ids(values: HFConfig) -> tuple[int, ...]:
    """Return the ids of `bad_words_ids`. Hugging Face can also forbid sequences; no translation model has any."""
    words = values.get("bad_words_ids")
    if words is None:
        return ()
    ids = [word[0] for word in words if isinstance(word, list) and len(word) == 1] if isinstance(words, list) else []
    if not isinstance(words, list) or len(ids) != len(words) or not all(type(id) is int for id in ids):
        raise values.error("bad_words_ids", "a list of single ids, each in a list")
    return tuple(sorted(set(ids)))


BY_TASK, FOR_ALL = "task_specific_params", "prefix"


def read_prefixes(values: HFConfig) -> dict[str, str]:
    """Return the prefix of each task. Other parameters of a task are about search and are not read."""
    tasks = values.get(BY_TASK, {})
    if not isinstance(tasks, dict) or not all(isinstance(task, dict) for task in tasks.values()):
        raise values.error(BY_TASK, "a table of tasks")
    prefixes = {ANY_TASK: values.get(FOR_ALL), **{name: task.get("prefix") for name, task in tasks.items()}}
    for name, prefix in prefixes.items():
        if prefix is not None and not isinstance(prefix, str):
            raise values.error(BY_TASK if name in tasks else FOR_ALL, f"a text for '{name}'")
    return {name: prefix for name, prefix in prefixes.items() if prefix}


def write_prefixes(prefixes: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of config.json for the prefixes."""
    tasks = {name: {"prefix": prefix} for name, prefix in prefixes.items() if name != ANY_TASK}
    values: dict[str, Any] = {BY_TASK: tasks} if tasks else {}
    return values | ({FOR_ALL: prefixes[ANY_TASK]} if ANY_TASK in prefixes else {})


def warn_of_prefixes(values: HFConfig) -> None:
    """Warn of prefixes in a config.json whose family cannot keep them, with the option that gives them."""
    if prefixes := read_prefixes(values):
        listed = ", ".join(f"{prefix!r} ({name})" for name, prefix in prefixes.items())
        warnings.warn(
            f"{values.where}: Hugging Face's pipelines put a prefix before each text; heedful does not keep it for "
            f"this model: {listed}. Pass it as prefix= to heedful.pipeline, or as --prefix to heedful summarize",
            stacklevel=3,
        )
