"""Small models, their logits, and checks of refused folders."""

from pathlib import Path

import pytest
import torch

from deterministic import fill, whole_numbers
from heedful.atomic_io import MANIFEST, write_manifest
from heedful.errors import UserError
from heedful.models.model_io import load_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import Tokenizers


def make(tokenizers: Tokenizers | None = None, *, dtype=torch.float32, **changes) -> Seq2Seq:
    sizes = (11, 11) if tokenizers is None else (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    settings = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 12, **changes}
    return fill(Seq2Seq(Seq2SeqConfig(*sizes, **settings)), dtype=dtype)


def logits(model: Seq2Seq) -> torch.Tensor:
    config = model.config
    source = whole_numbers(2, 5, below=config.source_vocab_size, name="s")
    return model(source, whole_numbers(2, 4, below=config.target_vocab_size, name="t"))


def refused(folder: Path, *words: str) -> str:
    """Check that loading the folder fails with a message that has all of these words, and return the message."""
    with pytest.raises(UserError) as caught:
        load_model(folder)
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"
    return str(caught.value)


def rewrite(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # some file systems wait for the disk when a file is cut to zero and written again
    path.write_bytes(content)


def sealed(folder: Path) -> Path:
    """Write a new manifest that fits the changed files, as an attacker would, and return the folder."""
    (folder / MANIFEST).unlink(missing_ok=True)
    write_manifest(folder)
    return folder
