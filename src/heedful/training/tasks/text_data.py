"""Running text, prepared for every task that learns from it: documents, held-out part, tokenizer, shards.

run/tokenizers/   run/data/train-0/ … and run/data/valid/ (shards)   run/data/text.json (facts about the text)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.data.binarize import prepare
from heedful.data.corpus import Corpus, Example
from heedful.data.shards import Shards
from heedful.data.splits import Documents, DocumentUnit, split_documents
from heedful.errors import UserError
from heedful.text import MASK_PIECE, Tokenizer, Tokenizers, load_tokenizers
from heedful.training.data_preparation import open_shards, report_skipped, text_tokenizer
from heedful.training.settings import Settings
from heedful.training.tasks.base import Preparation, TaskDescription

FACTS = "text.json"


@dataclass(frozen=True)
class Texts:
    """Running text, prepared."""

    tokenizers: Tokenizers
    train: list[Shards]
    valid: Shards
    n_valid_characters: int

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source


def prepare_texts(preparation: Preparation, symbols: Sequence[str] = ()) -> None:
    """Prepare running text in the run folder; `symbols` are special tokens that the task needs."""
    data, notify = preparation.settings.data, preparation.notify
    corpora, valid = preparation.files.corpora(data), preparation.files.valid_corpus(data)
    if valid is None:
        training, held_out, how = split_documents(
            corpora, data.documents, hold_out=data.hold_out, share=data.hold_out_share
        )
    else:
        training, held_out = [_all(corpus, data.documents) for corpus in corpora], [_all(valid, data.documents)]
        how = f"given {valid.fingerprint()}"
    _require_content(held_out, valid, preparation)
    how = f"{how}, {data.documents}"
    tokenizer = text_tokenizer(
        preparation.folder / "tokenizers",
        (example.source for part in training for example in part),
        preparation.settings,
        init_from=preparation.tokenizers,
        notify=notify,
        symbols=symbols,
    )
    folder, fingerprints = preparation.folder / "data", [corpus.fingerprint() for corpus in corpora]
    shards = [
        prepare(part, tokenizer, folder / f"train-{number}", fingerprint=f"{fingerprint}, {how}")
        for number, (part, fingerprint) in enumerate(zip(training, fingerprints, strict=True))
    ]
    valid_fingerprint = f"{' '.join(fingerprints)}, {how}"
    prepare(chain.from_iterable(held_out), tokenizer, folder / "valid", fingerprint=valid_fingerprint)
    n_characters = sum(len(tokenizer.normalize(example.source)) for part in held_out for example in part)
    write_json(folder / FACTS, {"valid_characters": n_characters}, durable=True)
    for corpus in (*corpora, *([valid] if valid is not None else [])):
        report_skipped(corpus, notify)
    notify(
        f"training on {sum(map(len, shards)):,} documents, {sum(map(n_tokens, shards)):,} tokens; validating on "
        f"{n_characters:,} characters, {'given' if valid is not None else 'held out'}"
    )


def reopen_texts(folder: Path, settings: Settings) -> Texts:
    """Read what `prepare_texts` wrote."""
    data = folder / "data"
    tokenizers = load_tokenizers(folder / "tokenizers", probe=False)
    n_characters = int(read_json(data / FACTS)["valid_characters"])
    return Texts(tokenizers, open_shards(folder), Shards.open(data / "valid"), n_characters)


def n_tokens(shards: Shards) -> int:
    return shards.manifest.sides["source"].tokens


def describe_texts(texts: Texts, *, what: str, output: str, tag: str, command: str) -> TaskDescription:
    """Describe a task on running text, whose examples are documents."""
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
    """Return the id of the mask token, or raise a UserError if the tokenizer has none."""
    mask_id = tokenizer.special_ids.mask_id
    if mask_id is None:
        raise UserError(
            f"the tokenizer has no mask token ({MASK_PIECE}): learn a new tokenizer, or, if it is a T5's, "
            "--set task=spans"
        )
    return mask_id


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """Return the pieces of the whole vocabulary, by id."""
    return tokenizer.pieces(range(tokenizer.vocab_size))


def word_starts(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return, by id, whether a piece begins a word: "▁word", "Ġword", or no "##" before it."""
    pieces = pieces_of(tokenizer)
    if any(piece.startswith("##") for piece in pieces):
        return np.array([not piece.startswith("##") for piece in pieces])
    starts = np.array([piece.startswith(("▁", "Ġ")) for piece in pieces])
    if not starts.any():
        raise UserError(
            "the pieces of this tokenizer do not show where words begin, so whole words cannot be masked: "
            "set noise.whole_words = false"
        )
    return starts


def _require_content(held_out: Iterable[Iterable[Example]], valid: Corpus | None, preparation: Preparation) -> None:
    """Reject a blank validation text: a file of blank lines, or the blank end of a training file."""
    if any(example.source.strip() for part in held_out for example in part):
        return
    if valid is not None:
        raise UserError(
            f"{valid.paths[0]}: no text to validate with, only blank lines. Give another file, or leave out --valid: "
            "then a part of the training text is held out"
        )
    raise UserError(
        f"{', '.join(preparation.files.source)}: data.hold_out_share = {preparation.settings.data.hold_out_share!r} "
        "holds out no text at the end. Raise it, or give --valid"
    )


def _all(corpus: Corpus, unit: DocumentUnit) -> Iterable[Example]:
    return Documents(corpus, unit, lambda text: True)
