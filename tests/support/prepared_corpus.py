"""A small corpus and its tokenizers; the tokenizers are learnt once per test process."""

import functools
import random
from pathlib import Path

from heedful.data import Example, Shards, prepare
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizers

TEXT = "a an the dog cat man woman child runs walks sits red blue green small big house street with and on under"


def make_examples(n: int, *, seed: int = 0, longest: int = 20) -> list[Example]:
    """Make pairs with their number on both sides, so that a shifted pair is noticed."""
    generator = random.Random(seed)
    examples = []
    for number in range(n):
        words = generator.choices(TEXT.split(), k=generator.randint(1, longest))
        examples.append(Example(f"{number} {' '.join(words)}", f"{' '.join(reversed(words))} ü {number}"))
    return examples


@functools.cache
def tokenizers(*, sample_alpha: float = 0.0, joint: bool = True) -> Tokenizers:
    examples = make_examples(500)
    config = TokenizerConfig(vocab_size=400, joint=joint, sample_alpha=sample_alpha)
    return learn_tokenizers((e.source for e in examples), (e.target for e in examples), config)


def prepared(folder: Path, n: int, *, keep_text: bool = False, seed: int = 0) -> Shards:
    examples = make_examples(n, seed=seed)
    pieces = tokenizers(sample_alpha=0.1 if keep_text else 0.0)
    return prepare(examples, pieces, folder, fingerprint=f"{n} {seed}", keep_text=keep_text, n_workers=1)
