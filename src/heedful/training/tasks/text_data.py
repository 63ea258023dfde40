"""What every task on running text begins with: documents, a part held out, a tokenizer, shards.

run/tokenizers/   run/data/train-0/ … and run/data/valid/ (shards)   run/data/text.json (facts of the text)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heedful.config import read_json
from heedful.data.binarize import prepare
from heedful.data.corpus import Corpus, Example
from heedful.data.shards import Shards
from heedful.data.splits import Documents, DocumentUnit, split_documents
from heedful.errors import UserError
from heedful.text import MASK_PIECE, Tokenizer, Tokenizers, load_tokenizers
from heedful.training.data_preparation import say_left_out
from heedful.training.settings import Settings
from heedful.training.tasks.base import Preparation, TaskDescription
from heedful.training.tasks.stages import one_tokenizer, write_json

FACTS = "text.json"


@dataclass(frozen=True)
class Texts:
    """What was prepared of running text."""

    tokenizers: Tokenizers
    train: list[Shards]
    valid: Shards
    n_valid_characters: int

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source


def prepare_texts(given: Preparation, symbols: Sequence[str] = ()) -> None:
    """Everything in the run's folder, made or found; `symbols` are further special tokens that the task needs."""
    data = given.settings.data
    corpora, valid = given.files.corpora(data), given.files.valid_corpus(data)
    if valid is None:
        training, held_out, how = split_documents(
            corpora, data.documents, hold_out=data.hold_out, share=data.hold_out_share
        )
    else:
        training, held_out = [_all(corpus, data.documents) for corpus in corpora], [_all(valid, data.documents)]
        how = f"given {valid.fingerprint()}"
    _require_content(held_out, valid, given)
    how = f"{how}, {data.documents}"
    texts = (example.source for part in training for example in part)
    tokenizer = one_tokenizer(given, texts, symbols=symbols).source
    folder, prints = given.folder / "data", [corpus.fingerprint() for corpus in corpora]
    shards = [
        prepare(part, tokenizer, folder / f"train-{number}", fingerprint=f"{print_}, {how}")
        for number, (part, print_) in enumerate(zip(training, prints, strict=True))
    ]
    prepare(chain.from_iterable(held_out), tokenizer, folder / "valid", fingerprint=f"{' '.join(prints)}, {how}")
    n_characters = sum(len(tokenizer.normalize(example.source)) for part in held_out for example in part)
    write_json(folder / FACTS, {"valid_characters": n_characters})
    for corpus in (*corpora, *([valid] if valid is not None else [])):
        say_left_out(corpus, given.say)
    n_ids = sum(map(n_tokens, shards))
    given.say(
        f"training on {sum(map(len, shards)):,} documents, {n_ids:,} tokens; validating on {n_characters:,} "
        f"characters, {'given' if valid is not None else 'held out'}"
    )


def reopen_texts(folder: Path, settings: Settings) -> Texts:
    data = folder / "data"
    train = [Shards.open(path) for path in sorted(data.glob("train-*"), key=lambda path: int(path.name[6:]))]
    tokenizers = load_tokenizers(folder / "tokenizers", probe=False)
    return Texts(tokenizers, train, Shards.open(data / "valid"), int(read_json(data / FACTS)["valid_characters"]))


def n_tokens(shards: Shards) -> int:
    return shards.manifest.sides["source"].tokens


def about_texts(texts: Texts, *, what: str, output: str, tag: str, command: str) -> TaskDescription:
    return TaskDescription(
        what=what,
        output=output,
        tag=tag,
        unit="documents",
        train=tuple(map(len, texts.train)),
        valid=len(texts.valid),
        valid_sha256=texts.valid.manifest.files["source.ids"].sha256,
        command=command,
    )


def mask_id_of(tokenizer: Tokenizer) -> int:
    """The id that hides others."""
    found = tokenizer.special_ids.mask_id
    if found is None:
        raise UserError(
            f"the tokenizer has no piece that hides others ({MASK_PIECE}): learn a new one, or, if it is one of T5's, "
            "--set task=spans"
        )
    return found


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.vocab_size))


def word_starts(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """By id, whether a piece begins a word, as the vocabulary writes that: "▁word", "Ġword", or no "##" before it."""
    pieces = pieces_of(tokenizer)
    if any(piece.startswith("##") for piece in pieces):
        return np.array([not piece.startswith("##") for piece in pieces])
    starts = np.array([piece.startswith(("▁", "Ġ")) for piece in pieces])
    if not starts.any():
        raise UserError(
            "the pieces of this tokenizer do not say where words begin, so whole words cannot be hidden: "
            "set noise.whole_words = false"
        )
    return starts


def _require_content(held_out: Iterable[Iterable[Example]], valid: Corpus | None, given: Preparation) -> None:
    """Documents that are held out have content; a file that was given, or the end of one, may be blank."""
    if any(example.source.strip() for part in held_out for example in part):
        return
    if valid is not None:
        raise UserError(
            f"{valid.paths[0]}: no text to validate with, only blank lines. Give another file, or leave out --valid: "
            "then a part of the training text is held out"
        )
    raise UserError(
        f"{', '.join(given.files.source)}: data.hold_out_share = {given.settings.data.hold_out_share!r} holds out no "
        "text at the end. Raise it, or give --valid"
    )


def _all(corpus: Corpus, divided: DocumentUnit) -> Iterable[Example]:
    return Documents(corpus, divided, lambda text: True)
