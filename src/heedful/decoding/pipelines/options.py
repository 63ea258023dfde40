"""What callers of Hugging Face's pipelines pass, in one place for all: what it means here, and what is refused."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.errors import UserError, nearest, warn

# Theirs -> the field of SearchSettings.
SEARCH = {
    "num_beams": "beam",
    "num_return_sequences": "n_best",
    "length_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "max_new_tokens": "max_len",
    "min_new_tokens": "min_len",
}
SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "seed": "seed"}
STOPS = {True: "patience", False: "estimated", "never": "proven"}  # of early_stopping
# Taken and not needed: batches are made by length, padding is no token, and what a model cannot take whole is always
# split, reduced or cut, as the pipeline's own docs say.
UNUSED = ("batch_size", "truncation", "padding", "clean_up_tokenization_spaces", "pad_token_id")


def check_options(options: Mapping[str, Any], known: Iterable[str] = ()) -> None:
    """Refuse an option that neither is known nor may be left unused."""
    allowed = [*UNUSED, *known]
    for name in options:
        if name not in allowed:
            raise UserError(f"pipeline: unknown option {name!r}{nearest(name, allowed)}\nallowed: {', '.join(allowed)}")
    batch_size = options.get("batch_size")
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch_size = {batch_size}: must be at least 1")


def search_options(
    options: Mapping[str, Any],
    *,
    beam: int,
    early_stopping: bool | None = None,
    lengths: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
) -> dict[str, Any]:
    """The fields of SearchSettings. `beam` and `early_stopping` are what holds where a caller says nothing of them;
    `lengths` has further names, which count less than those of new tokens; `also` what else the pipeline takes.
    """
    options = {name: value for name, value in options.items() if value is not None}
    names = {**(lengths or {}), **SEARCH}
    check_options(options, [*names, "do_sample", "early_stopping", *SAMPLING, *also])
    settings = {ours: options[theirs] for theirs, ours in names.items() if theirs in options}
    given = {ours: options[theirs] for theirs, ours in SAMPLING.items() if theirs in options}
    if options.get("do_sample", False):
        if options.get("num_beams", 1) > 1:
            raise UserError("pipeline: num_beams > 1 with do_sample: a beam is searched, not drawn; pass one of them")
        return {**settings, "sampling": {"top_k": 50, **given}}  # 50 is Hugging Face's default
    if given:  # theirs goes on without them as well
        warn(f"{', '.join(given)}: acts only with do_sample=True")
    stop = options.get("early_stopping", early_stopping)
    if stop is not None and settings.get("beam", beam) > 1:
        settings["stop"] = _stop(stop)
    return settings


def _stop(early_stopping: object) -> str:
    if isinstance(early_stopping, (bool, str)) and early_stopping in STOPS:
        return STOPS[early_stopping]
    raise UserError(f"early_stopping = {early_stopping!r}: must be True, False or 'never'")
