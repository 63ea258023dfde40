"""Small encoders with tokenizers, for tests: numbers of their own, no training."""

import json
from pathlib import Path

import torch

from deterministic import fill
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import save_model
from heedful.models.vit import Vit, VitConfig
from heedful.text import MASK_PIECE, TokenizerConfig, Tokenizers, learn_tokenizer
from heedful.text.foreign import load_foreign

LINES = [
    "a dog runs through the snow",
    "two dogs run on the beach, and a man looks at them",
    "a cat sleeps on the bench in the sun",
    "the animal did not cross the street because it was too tired",
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,!?", "##s", "##ing", "##n"]
SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20, "max_len": 40}


def own_tokenizers(**changes: object) -> Tokenizers:
    """heedful's own, with a symbol for hidden words."""
    config = TokenizerConfig(**{"vocab_size": 340, "special_tokens": (MASK_PIECE,), **changes})
    tokenizer = learn_tokenizer(LINES, config)
    return Tokenizers(source=tokenizer, target=tokenizer)


def word_pieces(folder: Path) -> Tokenizers:
    """BERT's, of a vocab.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    words = sorted({word.strip(",") for line in LINES for word in line.split()})
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys([*WORDS, *words])) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return load_foreign(folder, model_type="bert")


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
