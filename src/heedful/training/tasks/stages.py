"""Stages of preparing data that several tasks share: each leaves a finished result or none, and is not done twice."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from heedful.atomic_io import atomic_folder, sync
from heedful.errors import UserError
from heedful.text import Tokenizers, has_tokenizers, learn_tokenizer, load_tokenizers, save_tokenizers
from heedful.training.tasks.base import Preparation


def one_tokenizer(given: Preparation, texts: Iterable[str], *, symbols: Sequence[str] = ()) -> Tokenizers:
    """The tokenizer of a model that reads one kind of text: learned, found, or that of a model to start from."""
    folder = given.folder / "tokenizers"
    if has_tokenizers(folder):
        return load_tokenizers(folder, probe=False)
    if given.tokenizers is None:
        wanted = given.settings.tokenizer
        more = tuple(symbol for symbol in symbols if symbol not in wanted.special_tokens)
        tokenizer = learn_tokenizer(texts, replace(wanted, special_tokens=(*more, *wanted.special_tokens)))
        tokenizers = Tokenizers(source=tokenizer, target=tokenizer)
        fewer = "" if tokenizer.vocab_size >= wanted.vocab_size else f" ({wanted.vocab_size:,} were allowed)"
        given.say(f"learned a {wanted.kind} tokenizer: {tokenizer.vocab_size:,} pieces{fewer}")
    else:
        tokenizers = given.tokenizers
        given.say("the tokenizer is that of the model to start from")
    with atomic_folder(folder) as aside:
        save_tokenizers(aside, tokenizers)
    return tokenizers


def refuse_weights(given: Preparation) -> None:
    """For tasks that put all their files together before the first epoch."""
    if weights := given.settings.data.weights:
        raise UserError(
            f"data.weights = {list(weights)}: files of {given.files.content} are learned from as one corpus, each of "
            "their examples once in an epoch. Leave data.weights out"
        )


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """A small file, whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".writing-{os.getpid()}")
    aside.write_text(json.dumps(values, ensure_ascii=False) + "\n", encoding="utf-8")
    sync(aside)
    aside.rename(path)
