"""Tokenizers and a saved model for the tests of model folders."""

from pathlib import Path

import pytest

from heedful.models.model_io import save_model
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizers
from model_folders import make

ENGLISH = ["a dog runs", "two men sit on a bench", "the animal didn't cross the street because it was too tired"]
GERMAN = ["ein Hund rennt", "zwei Männer sitzen auf einer Bank", "das Tier überquerte die Straße nicht"]


@pytest.fixture(scope="session")
def joint() -> Tokenizers:
    return learn_tokenizers(ENGLISH, GERMAN, TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False))


@pytest.fixture(scope="session")
def separate() -> Tokenizers:
    return learn_tokenizers(
        ENGLISH, GERMAN, TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False, joint=False)
    )


@pytest.fixture
def plain(tmp_path) -> Path:
    """A folder of a model that takes ids only: quick to load."""
    return save_model(tmp_path / "model", make(), None, card="# A model\n")
