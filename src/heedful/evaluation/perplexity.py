"""The log-probability of references under an encoder-decoder (teacher-forced), and perplexity."""

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

LOGIT_ROWS = 512  # tokens whose logits are in memory at a time


@dataclass(frozen=True)
class Likelihood:
    """The log-probability of each reference, and perplexity.

    A pair that is longer than the model's learned positions is left out: its log-probability and its number of tokens
    are 0.

    >>> Likelihood(log_probs=[-2.0, -4.0], n_tokens=[1, 2]).loss
    2.0
    """

    log_probs: list[float]  # natural logarithms
    n_tokens: list[int]  # tokens of each reference, with the end of the text
    left_out: tuple[int, ...] = ()  # indices of the pairs that were not scored
    beyond_max_len: tuple[int, ...] = ()  # indices of pairs longer than max_len that were scored all the same
    max_len: int = 0  # tokens that the model was trained for

    @property
    def n_scored(self) -> int:
        """How many references were scored."""
        return len(self.log_probs) - len(self.left_out)

    @property
    def loss(self) -> float:
        """The mean negative log-probability of a token, in nats."""
        return -math.fsum(self.log_probs) / max(1, sum(self.n_tokens))

    @property
    def perplexity(self) -> float:
        """exp(loss); a loss above 700 is treated as 700, so that the result is finite."""
        return math.exp(min(700.0, self.loss))

    @property
    def nats_per_sentence(self) -> float:
        """The mean negative log-probability of a reference: unlike perplexity, comparable across vocabularies."""
        return -math.fsum(self.log_probs) / max(1, self.n_scored)

    def notes(self) -> list[str]:
        """Return a sentence for each reason why the perplexity may mislead."""
        notes = []
        if self.left_out:
            notes.append(
                f"{_pairs(self.left_out)} longer than the {self.max_len:,} positions that the model has learned; "
                f"perplexity is computed on the other {self.n_scored:,}"
            )
        if self.beyond_max_len:
            notes.append(
                f"{_pairs(self.beyond_max_len)} longer than the {self.max_len:,} tokens that the model was trained "
                "for, which makes the perplexity worse"
            )
        return notes


def _pairs(indices: Sequence[int]) -> str:
    first = min(indices) + 1
    if len(indices) == 1:
        return f"1 pair, line {first:,}, is"
    return f"{len(indices):,} pairs, the first in line {first:,}, are"


@torch.inference_mode()
def likelihood(
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> Likelihood:
    """Compute the log-probability of each reference given its source.

    If the model has learned positions, longer pairs are left out and listed in the result. `batch_tokens` limits the
    tokens of a batch, with padding; a single longer pair is a batch of its own. `on_progress` is called with the number
    of pairs that are done. The model should be in evaluation mode (`model.eval()`), or dropout is applied.
    """
    if len(sources) != len(references):
        raise UserError(f"{len(sources):,} sources, but {len(references):,} references: pass one for each source")
    device = device_of(model)
    log_probs, n_tokens = [0.0] * len(sources), [0] * len(sources)
    pairs = _encode(model, tokenizers, sources, references)
    too_long = tuple(index for index, pair in enumerate(pairs) if pair.length > model.config.max_len)
    left_out = () if model.max_length is None else too_long
    on_progress(n_done := len(left_out))
    for batch in _batches(pairs, model.config.special_ids, batch_tokens, left_out=set(left_out)):
        scores, lengths = _row_log_probs(model, batch.to(device)), batch.target_mask.sum(dim=1)
        for index, score, length in zip(batch.indices.tolist(), scores.tolist(), lengths.tolist(), strict=True):
            log_probs[index], n_tokens[index] = score, length
        on_progress(n_done := n_done + len(batch))
    beyond_max_len = too_long if model.max_length is None else ()
    return Likelihood(log_probs, n_tokens, left_out, beyond_max_len, model.config.max_len)


def _row_log_probs(model: EncoderDecoder, batch: Batch) -> Tensor:
    """Return the log-probability of each row of `batch.target_out`: (B,) float64."""
    memory = model.encode(batch.source, batch.source_mask)
    states = model.hidden_states(batch.target_in, memory, target_mask=batch.target_mask)
    states, targets = states[batch.target_mask], batch.target_out[batch.target_mask]  # (M, D), (M,): without padding
    parts = []
    for start in range(0, len(states), LOGIT_ROWS):
        logits = model.head(states[start : start + LOGIT_ROWS])  # (at most LOGIT_ROWS, V)
        parts.append(logits.log_softmax(dim=-1).gather(1, targets[start : start + LOGIT_ROWS, None]).squeeze(1))
    log_probs = torch.cat(parts).cpu().double()  # on the CPU, because mps has no float64
    rows = batch.target_mask.nonzero()[:, 0].cpu()  # (M,): the row of each token
    return log_probs.new_zeros(len(batch)).index_add_(0, rows, log_probs)


class _Pair(NamedTuple):
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    @property
    def length(self) -> int:
        """The number of tokens of the longer side, including its end token."""
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
    """Yield batches of pairs of similar length, shortest first."""
    lengths = [pair.length for pair in pairs]
    order = sorted((i for i in range(len(pairs)) if i not in left_out), key=lengths.__getitem__)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= batch_tokens:
            stop += 1
        chosen = order[start:stop]
        yield collate_pairs(
            [pairs[i].source for i in chosen],
            [pairs[i].target for i in chosen],
            np.array(chosen),
            special_ids=special_ids,
        )
        start = stop
