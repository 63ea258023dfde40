"""Small random models whose translations have many lengths, as those of trained models have."""

import functools
import random

import torch

from heedful.decoding.search.continuous_batching import search
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.fast_seq2seq import FastSeq2SeqStep, supports_fast_step
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig

PATTERNS = {"window": PatternConfig("window", span=4), "additive": PatternConfig("additive")}
VOCAB_SIZE = 20


@functools.cache
def tiny_model(seed: int = 0, **settings: object) -> Seq2Seq:
    """Return a model in float64, so that rounding does not decide. Most random models never end: several are tried."""
    requests = sentences(24, seed=seed)

    def variety(model: Seq2Seq) -> int:
        found = search(FastSeq2SeqStep(model), requests, SearchSettings(beam=1, max_len=20), n_rows=24)
        return len({len(row[0].ids) for row in found})

    best, most = random_model(seed, **settings), 0
    for attempt in range(20):
        model = random_model(1000 * seed + attempt, **settings)
        if not supports_fast_step(model.config):
            return model
        if variety(model) > most:
            best, most = model, variety(model)
        if most >= 6:
            break
    return best


def random_model(seed: int, *, vocab_size: int = VOCAB_SIZE, **settings: object) -> Seq2Seq:
    torch.manual_seed(seed)
    given = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "tied": "none", **settings}
    config = Seq2SeqConfig(source_vocab_size=vocab_size, target_vocab_size=vocab_size, **given)  # type: ignore[arg-type]
    return Seq2Seq(config).double().eval()


def sentences(n: int, *, seed: int = 0, vocab_size: int = VOCAB_SIZE, longest: int = 12) -> list[Request]:
    draw = random.Random(seed)
    return [Request([draw.randrange(4, vocab_size) for _ in range(draw.randint(1, longest))]) for _ in range(n)]
