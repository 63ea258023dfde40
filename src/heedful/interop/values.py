"""Settings of somebody else's config.json, read by an allow-list: what is not asked for is not believed.

A family asks for the keys that it understands. A key that would change what the model computes, and that heedful has
no place for, is refused by name; a key that nobody knows is named in a warning.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from heedful.errors import UserError

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


class Values:
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
