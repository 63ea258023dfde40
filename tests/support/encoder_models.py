"""Small untrained encoders with tokenizers, for tests."""

import json
from pathlib import Path

import torch

from deterministic import fill
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import save_model
from heedful.models.vit import Vit, VitConfig
from heedful.text import MASK_PIECE, HFTokenizer, TokenizerConfig, Tokenizers, learn_tokenizer

LINES = [
    "a dog runs through the snow",
    "two dogs run on the beach, and a man looks at them",
    "a cat sleeps on the bench in the sun",
    "the animal did not cross the street because it was too tired",
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,!?", "##s", "##ing", "##n"]
SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20, "max_len": 40}


def own_tokenizers(**changes: object) -> Tokenizers:
    """Return tokenizers of heedful's own, with a mask token."""
    config = TokenizerConfig(**{"vocab_size": 340, "special_tokens": (MASK_PIECE,), **changes})
    tokenizer = learn_tokenizer(LINES, config)
    return Tokenizers(source=tokenizer, target=tokenizer)


def word_pieces(folder: Path) -> Tokenizers:
    """Write the vocab.txt of a BERT into a folder and return its tokenizer."""
    from tokenizers import BertWordPieceTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    words = sorted({word.strip(",") for line in LINES for word in line.split()})
    vocabulary = list(dict.fromkeys([*WORDS, *words]))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    backend = BertWordPieceTokenizer(vocab={piece: id for id, piece in enumerate(vocabulary)}, lowercase=True)
    roles = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    tokenizer = HFTokenizer(backend.to_str(), {**roles, "mask_token": "[MASK]"})
    return Tokenizers(source=tokenizer, target=tokenizer)


def bert_folder(folder: Path, tokenizers: Tokenizers, **changes: object) -> Path:
    special_ids = tokenizers.source.special_ids
    config = BertConfig(tokenizers.source.vocab_size, **{**SIZES, "special_ids": special_ids, **changes})
    return save_model(folder, fill(Bert(config), dtype=torch.float32), tokenizers)


def vit_folder(folder: Path, **changes: object) -> Path:
    sizes = {"image_size": 12, "patch_size": 4, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20}
    config = VitConfig(**{**sizes, "labels": ("cat", "dog", "bird"), **changes})
    return save_model(folder, fill(Vit(config), dtype=torch.float32), None)


def picture(path: Path, *, size: int = 15, seed: int = 0) -> Path:
    import numpy as np
    from PIL import Image

    array = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(array).save(path)
    return path
