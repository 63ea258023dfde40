"""Folders of small BERT and ViT models as Hugging Face saves them."""

from pathlib import Path

import pytest
import torch

from encoder_models import word_pieces
from hugging_face import unlike

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
}


def folder_of(head, folder: Path, **settings) -> Path:
    """Write a model and its tokenizer with `save_pretrained` and return the folder."""
    word_pieces(folder / "words")
    tokenizer = transformers.BertTokenizer.from_pretrained(folder / "words")
    config = transformers.BertConfig(vocab_size=len(tokenizer), **{**SIZES, **settings})
    unlike(head(config), torch.float32).save_pretrained(folder / "theirs")
    tokenizer.save_pretrained(folder / "theirs")
    return folder / "theirs"
