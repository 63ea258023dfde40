"""The live hypotheses of a batch, and the log-probabilities of their next tokens.

Hypotheses are in NumPy arrays on the CPU, whatever the model's device: each step copies only a few numbers of each row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from torch import Tensor

from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings, length_norm
from heedful.text.special_ids import SpecialIds

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ActiveRequest:
    """A request in a search."""

    index: int  # among the requests of the call
    request: Request
    limit: int  # the most tokens to generate


class LiveHypotheses:
    """B slots with a request each, W hypotheses (rows) for each request. All rows of a slot have the same length."""

    def __init__(
        self, active: Sequence[ActiveRequest], width: int, settings: SearchSettings, special_ids: SpecialIds
    ) -> None:
        self.settings = settings
        self.special_ids = special_ids
        self.width = width
        self.active = list(active)
        self.finished: list[list[Hypothesis]] = [[] for _ in active]
        self.lengths = np.zeros(len(active), np.int64)  # (B,): tokens of each row
        self.limits = np.array([each.limit for each in active], np.int64)  # (B,)
        self.done = np.zeros(len(active), bool)  # (B,): the search for this request is over
        self.ended = np.zeros((len(active), width), bool)  # rows that have ended, in greedy search and sampling
        self.scores = np.zeros((len(active), width), np.float64)
        self.ids = np.zeros((len(active), width, 32), np.int64)  # (B, W, room for tokens)
        self.tokens = np.full((len(active), width), self.special_ids.start_id, np.int64)  # the newest of each row
        self.coverage: Floats | None = None  # (B, W, S): the sum of the attention to each source token
        self.reset(np.arange(len(active)))

    def __len__(self) -> int:
        return len(self.active)

    def reset(self, slots: Ints) -> None:
        """Begin the search in some slots. All rows of a beam are equal then, so that only the first one counts."""
        self.scores[slots] = 0.0
        if self.settings.sampling is None:
            self.scores[slots, 1:] = -np.inf
        self.lengths[slots] = 0
        self.tokens[slots] = self.special_ids.start_id
        self.done[slots] = False
        self.ended[slots] = False
        if self.coverage is not None:
            self.coverage[slots] = 0.0

    def refill(self, slots: Ints, active: Sequence[ActiveRequest]) -> None:
        """Put new requests into slots."""
        for slot, each in zip(slots.tolist(), active, strict=True):
            self.active[slot], self.finished[slot] = each, []
            self.limits[slot] = each.limit
        self.reset(slots)

    def keep(self, slots: Ints) -> None:
        """Drop all slots but the given ones."""
        self.active = [self.active[slot] for slot in slots]
        self.finished = [self.finished[slot] for slot in slots]
        for name in ("lengths", "limits", "done", "ended", "scores", "ids", "tokens"):
            setattr(self, name, getattr(self, name)[slots])
        if self.coverage is not None:
            self.coverage = self.coverage[slots]

    def append(self, tokens: Ints, scores: Floats, parents: Ints | None = None) -> None:
        """Append a token to each row, (B, W); row i continues row parents[i] of its slot, or itself."""
        if parents is not None:
            slots = np.arange(len(self))[:, None]
            self.ids = self.ids[slots, parents]
            if self.coverage is not None:
                self.coverage = self.coverage[slots, parents]
        if len(self) and int(self.lengths.max()) >= self.ids.shape[2]:
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)], axis=2)
        self.ids[np.arange(len(self)), :, self.lengths] = tokens
        self.lengths += 1
        self.tokens, self.scores = tokens, scores

    def ids_of(self, slot: int, row: int) -> list[int]:
        """Return the tokens of a row so far."""
        ids: list[int] = self.ids[slot, row, : self.lengths[slot]].tolist()
        return ids

    def add_attention(self, attention: Floats) -> None:
        """Add the attention of this step, (B, W, S), to the coverage."""
        if self.coverage is None:
            self.coverage = np.zeros(attention.shape, np.float64)
        missing = attention.shape[2] - self.coverage.shape[2]
        if missing > 0:
            self.coverage = np.pad(self.coverage, ((0, 0), (0, 0), (0, missing)))
        self.coverage = self.coverage[:, :, : attention.shape[2]] + attention

    def normalized_score(self, slot: int, row: int, score: float, length: int) -> float:
        """Return the score after the penalties for length and coverage."""
        normalized = score / length_norm(length, self.settings)
        if self.coverage is not None and self.settings.coverage_penalty:
            covered = self.coverage[slot, row, : len(self.active[slot].request)]
            normalized += self.settings.coverage_penalty * float(np.log(np.clip(covered, 1e-9, 1.0)).sum())
        return normalized

    def finish(self, slot: int, row: int, score: float, token: int) -> None:
        """Add the row with one more token to the finished hypotheses of its slot."""
        ids = self.ids_of(slot, row)
        complete = token == self.special_ids.eos_id
        if not complete:
            ids.append(token)
        normalized = self.normalized_score(slot, row, score, len(ids) + complete)
        self.finished[slot].append(Hypothesis(ids[self.special_ids.n_forced :], score, normalized, complete))

    def best(self, slot: int) -> list[Hypothesis]:
        """Return the n best finished hypotheses of a slot, best first."""
        ordered = sorted(self.finished[slot], key=lambda hypothesis: -hypothesis.normalized_score)
        return ordered[: self.settings.n_best]


class NextTokenScores:
    """The scores of the next token of each row: `logits` decide what is chosen, `raw_logits` what it counts.

    Logits processors change `logits` only, so that scores are the model's own log-probabilities.
    """

    def __init__(self, logits: Tensor, raw_logits: Tensor) -> None:
        self.logits = logits  # (N, V), after the processors
        self.raw_logits = raw_logits  # (N, V), as the model computed them; the same tensor if there is no processor

    @cached_property
    def log_sum(self) -> Tensor:
        """The log-sum-exp of the raw logits, (N,)."""
        return self.raw_logits.logsumexp(dim=1)

    def log_probs(self, tokens: Tensor) -> Floats:
        """Return the log-probabilities of k tokens of each row, (N, k) -> (N, k); -inf if ruled out."""
        log_probs: Floats = (self.raw_logits.gather(1, tokens) - self.log_sum[:, None]).cpu().double().numpy()
        return self._allowed(tokens, log_probs)

    def log_probs_of_one(self, tokens: Tensor) -> Floats:
        """Do the same for one token of each row, (N, 1) -> (N, 1); this kernel is twice as fast as log-sum-exp."""
        log_probs: Floats = self.raw_logits.log_softmax(dim=1).gather(1, tokens).cpu().double().numpy()
        return self._allowed(tokens, log_probs)

    def _allowed(self, tokens: Tensor, log_probs: Floats) -> Floats:
        if self.logits is self.raw_logits:
            return log_probs
        return np.where(np.isneginf(self.logits.gather(1, tokens).cpu().double().numpy()), -np.inf, log_probs)

    def log_prob(self, row: int, token: int) -> float:
        """Return the log-probability of one token of one row; -inf if it is ruled out."""
        ruled_out = self.logits[row, token] == -np.inf
        return -np.inf if ruled_out else float(self.raw_logits[row, token] - self.log_sum[row])


def as_ints(tokens: Tensor) -> Ints:
    ints: Ints = tokens.cpu().numpy()
    return ints


@dataclass(frozen=True)
class Candidates:
    """The best C continuations of each slot, best first; (B, C) each."""

    scores: Floats  # sums of log-probabilities
    parents: Ints  # the rows of the slot that they continue
    tokens: Ints
