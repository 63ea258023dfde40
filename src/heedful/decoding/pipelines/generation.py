"""`heedful.pipeline("text-generation", model=…)`, called and answering as in Hugging Face's Transformers 4."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.decoding.writing.generator import Generation, Generator
from heedful.errors import UserError, nearest

# What callers of Hugging Face pass -> the field of SearchSettings.
SEARCH = {
    "max_new_tokens": "max_len",
    "min_new_tokens": "min_len",
    "num_beams": "beam",
    "num_return_sequences": "n_best",
    "length_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
}
SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "seed": "seed"}
# Taken and not needed: batches are made by length, and padding is no token.
UNUSED = ("batch_size", "pad_token_id", "clean_up_tokenization_spaces", "truncation")
OWN = ("do_sample", "max_length", "early_stopping", "return_full_text")

Answer = list[dict[str, str]]


class GenerationPipeline:
    """pipe("Once") -> [{"generated_text": "Once upon a time"}]; a list of prompts gives a list of such lists."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __call__(self, prompts: str | Sequence[str], **options: Any) -> Answer | list[Answer]:
        """`max_length` counts the prompt, `max_new_tokens` does not. With `do_sample`, `seed` says what is drawn."""
        options = {name: value for name, value in options.items() if value is not None}
        _check(options)
        whole = options.get("return_full_text", True)
        settings = _settings(options)
        many = [prompts] if isinstance(prompts, str) else list(prompts)
        if "max_length" in options and "max_new_tokens" not in options:
            found = [self.generator.search(one, **settings, max_len=self._room(one, options)) for one in many]
        else:
            found = self.generator.search(many, **settings)
        answers = [_dicts(best, whole=whole) for best in found]
        return answers[0] if isinstance(prompts, str) else answers

    def _room(self, prompt: str, options: Mapping[str, Any]) -> int:
        n_prompt = len(self.generator.prompt_ids(prompt))
        room: int = options["max_length"] - n_prompt
        if room < 1:
            raise UserError(
                f"max_length = {options['max_length']} leaves no room after a prompt of {n_prompt} tokens; "
                "raise it, or pass max_new_tokens"
            )
        return room


def _check(options: Mapping[str, Any]) -> None:
    allowed = [*SEARCH, *SAMPLING, *OWN, *UNUSED]
    for name in options:
        if name not in allowed:
            raise UserError(f"pipeline: unknown option {name!r}{nearest(name, allowed)}\nallowed: {', '.join(allowed)}")
    if options.get("num_beams", 1) > 1 and options.get("do_sample"):
        raise UserError("pipeline: num_beams > 1 with do_sample: a beam is searched, not drawn; pass one of them")


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    settings = {ours: options[theirs] for theirs, ours in SEARCH.items() if theirs in options}
    given = {ours: options[theirs] for theirs, ours in SAMPLING.items() if theirs in options}
    if options.get("do_sample", False):  # top_k = 50 is Hugging Face's default
        settings["sampling"] = {"top_k": 50, **given}
    elif given:  # theirs goes on without them as well
        warnings.warn(f"{', '.join(given)}: acts only with do_sample=True", stacklevel=3)
    if settings.get("beam", 1) > 1 and not options.get("early_stopping", False):
        settings["stop"] = "estimated"
    return settings


def _dicts(best: Sequence[Generation], *, whole: bool) -> Answer:
    return [{"generated_text": one.prompt + one.text if whole else one.text} for one in best]
