"""How likely a model finds the references: teacher-forced, token by token."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import Batch, collate
from heedful.decoding.steps.encoder_decoder import EncoderDecoder, device_of
from heedful.errors import UserError
from heedful.text import Tokenizers

ROWS = 512  # rows of logits alive at a time


@dataclass(frozen=True)
class Likelihood:
    """Of each reference the log-probability (natural) and how many tokens it has, the end mark counted."""

    log_probs: list[float]
    n_tokens: list[int]

    @property
    def loss(self) -> float:
        """Nats per token."""
        return -math.fsum(self.log_probs) / max(1, sum(self.n_tokens))

    @property
    def perplexity(self) -> float:
        """Among how many words, on average, the model is undecided."""
        return math.exp(min(700.0, self.loss))

    @property
    def nats_per_sentence(self) -> float:
        """Comparable between models with different vocabularies, which perplexity is not."""
        return -math.fsum(self.log_probs) / max(1, len(self.log_probs))


@torch.inference_mode()
def likelihood(
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    batch_tokens: int = 4096,
    tell: Callable[[int], None] = lambda done: None,
) -> Likelihood:
    """The references under the model, in batches of about `batch_tokens` target tokens, padding counted.

    `tell` is called with the number of those that are done, from 0 upwards.
    The model is used as it is: call `.eval()` first, unless dropout is wanted.
    """
    if len(sources) != len(references):
        raise UserError(f"{len(sources):,} sources, but {len(references):,} references")
    device = device_of(model)
    log_probs, n_tokens = [0.0] * len(sources), [0] * len(sources)
    tell(n_done := 0)
    for batch in _batches(model, tokenizers, sources, references, batch_tokens):
        for row, log_prob in zip(batch.indices.tolist(), _of_rows(model, batch.to(device)).tolist(), strict=True):
            log_probs[row] = log_prob
        for row, n in zip(batch.indices.tolist(), batch.target_mask.sum(dim=1).tolist(), strict=True):
            n_tokens[row] = n
        tell(n_done := n_done + len(batch))
    return Likelihood(log_probs, n_tokens)


def _of_rows(model: EncoderDecoder, batch: Batch) -> Tensor:
    """(B,) float64: the log-probability of each row of `target_out`."""
    memory = model.encode(batch.source, batch.source_mask)
    states = model.states(batch.target_in, memory, target_mask=batch.target_mask)
    real, wanted = states[batch.target_mask], batch.target_out[batch.target_mask]  # (M, D), (M,)
    parts = []
    for start in range(0, len(real), ROWS):
        logits = model.head(real[start : start + ROWS])  # (at most ROWS, V)
        parts.append(logits.log_softmax(dim=-1).gather(1, wanted[start : start + ROWS, None]).squeeze(1))
    of_tokens = torch.cat(parts).cpu().double()  # mps has no float64
    rows = batch.target_mask.nonzero()[:, 0].cpu()  # (M,): of which sentence each token is
    return of_tokens.new_zeros(len(batch)).index_add_(0, rows, of_tokens)


def _batches(
    model: EncoderDecoder, tokenizers: Tokenizers, sources: Sequence[str], references: Sequence[str], batch_tokens: int
) -> Iterator[Batch]:
    """Pairs of like lengths together; none is left out, however long."""
    marks = model.config.marks
    source_ids = [np.array(marks.opened(ids), np.int64) for ids in tokenizers.source.encode_batch(sources)]
    target_ids = [np.array(marks.opened(ids), np.int64) for ids in tokenizers.target.encode_batch(references)]
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(source_ids, target_ids, strict=True)]
    _check_lengths(model, lengths)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= batch_tokens:
            stop += 1
        numbers = order[start:stop]
        yield collate(
            [source_ids[i] for i in numbers],
            [target_ids[i] for i in numbers],
            np.array(numbers),
            special=marks.special,
        )
        start = stop


def _check_lengths(model: EncoderDecoder, lengths: Sequence[int]) -> None:
    if model.longest is None:
        return
    for number, length in enumerate(lengths, start=1):
        if length > model.longest:
            raise UserError(
                f"sentence {number} has {length:,} tokens, and this model has learned {model.longest:,} "
                "positions: its references cannot be scored; leave the sentence out"
            )
