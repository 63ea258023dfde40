"""The likelihood of reference translations under a model: teacher-forced, token by token."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.collate import Batch, collate_pairs
from heedful.errors import UserError
from heedful.models.encoder_decoder import EncoderDecoder, device_of
from heedful.text import Tokenizers
from heedful.text.special_ids import SpecialIds

ROWS = 512  # rows of logits in memory at a time


@dataclass(frozen=True)
class Likelihood:
    """The natural log-probability of each reference, and its number of tokens with the end of the text.

    Both are 0 for pairs that were left out because they have more tokens than a model has learned positions.
    """

    log_probs: list[float]
    n_tokens: list[int]
    left_out: tuple[int, ...] = ()  # indices of pairs with more tokens than the model has positions
    beyond: tuple[int, ...] = ()  # indices of pairs longer than the model was trained for, but scored
    max_len: int = 0  # tokens that the model was trained for

    @property
    def n_scored(self) -> int:
        return len(self.log_probs) - len(self.left_out)

    @property
    def loss(self) -> float:
        """The mean negative log-probability of a token, in nats."""
        return -math.fsum(self.log_probs) / max(1, sum(self.n_tokens))

    @property
    def perplexity(self) -> float:
        """exp(loss): among how many equally probable tokens the model chooses, on average."""
        return math.exp(min(700.0, self.loss))

    @property
    def nats_per_sentence(self) -> float:
        """Nats per sentence: comparable between models with different vocabularies, unlike perplexity."""
        return -math.fsum(self.log_probs) / max(1, self.n_scored)

    def notes(self) -> list[str]:
        """Return what may make the perplexity misleading."""
        notes = []
        if self.left_out:
            notes.append(
                f"{_pairs(self.left_out)} longer than the {self.max_len:,} positions that the model has learned: "
                f"perplexity is that of the other {self.n_scored:,}"
            )
        if self.beyond:
            notes.append(
                f"{_pairs(self.beyond)} longer than the {self.max_len:,} tokens that the model was trained for: it has "
                "not learned positions beyond, which makes the perplexity worse"
            )
        return notes


def _pairs(numbers: Sequence[int]) -> str:
    first = min(numbers) + 1
    if len(numbers) == 1:
        return f"1 pair, line {first:,}, is"
    return f"{len(numbers):,} pairs, the first in line {first:,}, are"


@torch.inference_mode()
def likelihood(
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Likelihood:
    """Compute the likelihood of references, in batches of about `batch_tokens` target tokens with padding.

    If the model has learned positions, longer pairs are left out. `on_progress` is called with the number of pairs that
    are done, first with 0. The mode of the model is not changed: call `model.eval()` before, to switch dropout off.
    """
    if len(sources) != len(references):
        raise UserError(f"{len(sources):,} sources, but {len(references):,} references")
    device = device_of(model)
    log_probs, n_tokens = [0.0] * len(sources), [0] * len(sources)
    pairs = _encode(model, tokenizers, sources, references)
    too_long = tuple(number for number, pair in enumerate(pairs) if pair.length > model.config.max_len)
    left_out = () if model.max_length is None else too_long
    on_progress(n_done := len(left_out))
    for batch in _batches(pairs, model.config.special_ids, batch_tokens, left_out=set(left_out)):
        for row, log_prob in zip(batch.indices.tolist(), _of_rows(model, batch.to(device)).tolist(), strict=True):
            log_probs[row] = log_prob
        for row, n in zip(batch.indices.tolist(), batch.target_mask.sum(dim=1).tolist(), strict=True):
            n_tokens[row] = n
        on_progress(n_done := n_done + len(batch))
    beyond = too_long if model.max_length is None else ()
    return Likelihood(log_probs, n_tokens, left_out, beyond, model.config.max_len)


def _of_rows(model: EncoderDecoder, batch: Batch) -> Tensor:
    """Return the log-probability of each row of `target_out`, (B,) float64."""
    memory = model.encode(batch.source, batch.source_mask)
    states = model.hidden_states(batch.target_in, memory, target_mask=batch.target_mask)
    real, tokens = states[batch.target_mask], batch.target_out[batch.target_mask]  # (M, D), (M,)
    parts = []
    for start in range(0, len(real), ROWS):
        logits = model.head(real[start : start + ROWS])  # (at most ROWS, V)
        parts.append(logits.log_softmax(dim=-1).gather(1, tokens[start : start + ROWS, None]).squeeze(1))
    of_tokens = torch.cat(parts).cpu().double()  # mps has no float64
    rows = batch.target_mask.nonzero()[:, 0].cpu()  # (M,): the sentence of each token
    return of_tokens.new_zeros(len(batch)).index_add_(0, rows, of_tokens)


class _Pair(NamedTuple):
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    @property
    def length(self) -> int:
        """The tokens of the longer side, with its special token."""
        return max(len(self.source), len(self.target)) + 1


def _encode(
    model: EncoderDecoder, tokenizers: Tokenizers, sources: Sequence[str], references: Sequence[str]
) -> list[_Pair]:
    special_ids = model.config.special_ids
    source_ids = [
        np.array(special_ids.with_source_bos(ids), np.int64) for ids in tokenizers.source.encode_batch(sources)
    ]
    target_ids = [
        np.array(special_ids.with_source_bos(ids), np.int64) for ids in tokenizers.target.encode_batch(references)
    ]
    return [_Pair(source, target) for source, target in zip(source_ids, target_ids, strict=True)]


def _batches(
    pairs: Sequence[_Pair], special_ids: SpecialIds, batch_tokens: int, *, left_out: set[int]
) -> Iterator[Batch]:
    """Yield batches of pairs with similar lengths."""
    lengths = [pair.length for pair in pairs]
    order = sorted((i for i in range(len(pairs)) if i not in left_out), key=lengths.__getitem__)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= batch_tokens:
            stop += 1
        numbers = order[start:stop]
        yield collate_pairs(
            [pairs[i].source for i in numbers],
            [pairs[i].target for i in numbers],
            np.array(numbers),
            special_ids=special_ids,
        )
        start = stop
