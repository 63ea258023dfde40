"""Texts in, texts out: batches of like lengths, results in the order of the input."""

from collections.abc import Sequence

import torch

from heedful.data.batch import pad_sources
from heedful.decoding.greedy import greedy_search
from heedful.decoding.step import Seq2SeqStep
from heedful.models.seq2seq import Seq2Seq
from heedful.text import SPECIAL, Tokenizers


@torch.inference_mode()
def translate_greedily(
    model: Seq2Seq, tokenizers: Tokenizers, texts: Sequence[str], *, batch_tokens: int = 2048
) -> list[str]:
    """Greedy translations; a batch holds about `batch_tokens` source tokens, padding counted."""
    device = next(model.parameters()).device
    sources = tokenizers.source.encode_batch(texts)
    order = sorted(range(len(texts)), key=lambda i: len(sources[i]))
    step, results = Seq2SeqStep(model), [""] * len(texts)
    for numbers in _batches(order, sources, batch_tokens):
        source, mask = (x.to(device) for x in pad_sources([sources[i] for i in numbers]))
        # Long enough for any honest translation, short enough to end one that repeats itself.
        max_len = mask.sum(dim=1) * 2 + 10
        ids = greedy_search(
            step,
            step.begin(source, mask),
            n_rows=len(numbers),
            start=SPECIAL.start,
            end=SPECIAL.end,
            max_len=max_len,
        )
        for i, text in zip(numbers, tokenizers.target.decode_batch(ids), strict=True):
            results[i] = text
    return results


def _batches(order: list[int], sources: list[list[int]], batch_tokens: int) -> list[list[int]]:
    """Cut a list that is sorted by length where rows x longest would exceed the budget."""
    batches: list[list[int]] = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * (len(sources[i]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches
