"""What a search has written so far: `width` hypotheses for each sentence of the batch.

Kept beside the model in plain arrays, whatever device the model is on: a step brings over a few numbers for each row.

What a step says of the next token: what may be chosen, and what it counts.
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
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ActiveRequest:
    """One request on its way through a search."""

    number: int  # its place among the requests of the call
    request: Request
    limit: int  # the most tokens to write


class LiveHypotheses:
    """B sentences with W hypotheses each. Lengths count the tokens written, which all rows of a sentence share."""

    def __init__(
        self, entries: Sequence[ActiveRequest], width: int, settings: SearchSettings, special_ids: SpecialIds
    ) -> None:
        self.settings = settings
        self.special_ids = special_ids
        self.width = width
        self.entries = list(entries)
        self.finished: list[list[Hypothesis]] = [[] for _ in entries]
        self.lengths = np.zeros(len(entries), np.int64)  # (B,)
        self.limits = np.array([entry.limit for entry in entries], np.int64)
        self.over = np.zeros(len(entries), bool)  # nothing more to come
        self.ended = np.zeros((len(entries), width), bool)  # rows that wrote their end mark (a beam's rows never do)
        self.scores = np.zeros((len(entries), width), np.float64)
        self.written = np.zeros((len(entries), width, 32), np.int64)
        self.tokens = np.full((len(entries), width), self.special_ids.start_id, np.int64)  # the newest of each row
        self.coverage: Floats | None = None  # (B, W, S): how much each source token has been looked at
        self.fresh(np.arange(len(entries)))

    def __len__(self) -> int:
        return len(self.entries)

    def fresh(self, places: Ints) -> None:
        """Sentences that begin: the rows of a beam are alike, so only the first counts. Draws are all their own."""
        self.scores[places] = 0.0
        if self.settings.sampling is None:
            self.scores[places, 1:] = -np.inf
        self.lengths[places] = 0
        self.tokens[places] = self.special_ids.start_id
        self.over[places] = False
        self.ended[places] = False
        if self.coverage is not None:
            self.coverage[places] = 0.0

    def put(self, places: Ints, entries: Sequence[ActiveRequest]) -> None:
        for place, entry in zip(places.tolist(), entries, strict=True):
            self.entries[place], self.finished[place] = entry, []
            self.limits[place] = entry.limit
        self.fresh(places)

    def keep(self, places: Ints) -> None:
        self.entries = [self.entries[place] for place in places]
        self.finished = [self.finished[place] for place in places]
        for name in ("lengths", "limits", "over", "ended", "scores", "written", "tokens"):
            setattr(self, name, getattr(self, name)[places])
        if self.coverage is not None:
            self.coverage = self.coverage[places]

    def write(self, tokens: Ints, scores: Floats, parents: Ints | None = None) -> None:
        """Each row's next token (B, W), and from which row of its sentence it goes on."""
        if parents is not None:
            sentences = np.arange(len(self))[:, None]
            self.written = self.written[sentences, parents]
            if self.coverage is not None:
                self.coverage = self.coverage[sentences, parents]
        if len(self) and int(self.lengths.max()) >= self.written.shape[2]:
            self.written = np.concatenate([self.written, np.zeros_like(self.written)], axis=2)
        self.written[np.arange(len(self)), :, self.lengths] = tokens
        self.lengths += 1
        self.tokens, self.scores = tokens, scores

    def row(self, place: int, row: int) -> list[int]:
        ids: list[int] = self.written[place, row, : self.lengths[place]].tolist()
        return ids

    def look(self, attention: Floats) -> None:
        """Add where the rows looked in this step, (B, W, S)."""
        if self.coverage is None:
            self.coverage = np.zeros(attention.shape, np.float64)
        missing = attention.shape[2] - self.coverage.shape[2]
        if missing > 0:
            self.coverage = np.pad(self.coverage, ((0, 0), (0, 0), (0, missing)))
        self.coverage = self.coverage[:, :, : attention.shape[2]] + attention

    def normalized_score(self, place: int, row: int, score: float, length: int) -> float:
        """What finished hypotheses are compared by: the score, after the penalties for length and coverage."""
        normalized_score = score / length_norm(length, self.settings)
        if self.coverage is not None and self.settings.coverage_penalty:
            real = self.coverage[place, row, : len(self.entries[place].request)]
            normalized_score += self.settings.coverage_penalty * float(np.log(np.clip(real, 1e-9, 1.0)).sum())
        return normalized_score

    def finish(self, place: int, row: int, score: float, token: int | None = None) -> None:
        """Set a hypothesis aside: what the row has written and, if it did not end, one token more."""
        ids = self.row(place, row)
        complete = token is None or token == self.special_ids.eos_id
        if not complete:
            ids.append(token)  # type: ignore[arg-type]
        normalized_score = self.normalized_score(place, row, score, len(ids) + complete)
        self.finished[place].append(Hypothesis(ids[self.special_ids.n_forced :], score, normalized_score, complete))

    def best(self, place: int) -> list[Hypothesis]:
        ranked = sorted(self.finished[place], key=lambda hypothesis: -hypothesis.normalized_score)
        return ranked[: self.settings.n_best]


class NextTokenScores:
    """Filters change what is chosen, never what it counts: scores are the model's own log-probabilities."""

    def __init__(self, logits: Tensor, said: Tensor) -> None:
        self.logits = logits  # (N, V), after the filters
        self.said = said  # (N, V), as the model said it; the same tensor if there is no filter

    @cached_property
    def normaliser(self) -> Tensor:
        """(N,): log-sum-exp of what it said."""
        return self.said.logsumexp(dim=1)

    def gains(self, tokens: Tensor) -> Floats:
        """The log-probabilities of some tokens of each row, (N, k) -> (N, k); minus infinity for what is ruled out."""
        gains: Floats = (self.said.gather(1, tokens) - self.normaliser[:, None]).cpu().double().numpy()
        return self._allowed(tokens, gains)

    def gain_of_one(self, tokens: Tensor) -> Floats:
        """The same for one token of each row, (N, 1) -> (N, 1), by a kernel that is twice as fast as log-sum-exp."""
        gains: Floats = self.said.log_softmax(dim=1).gather(1, tokens).cpu().double().numpy()
        return self._allowed(tokens, gains)

    def _allowed(self, tokens: Tensor, gains: Floats) -> Floats:
        if self.logits is self.said:
            return gains
        return np.where(np.isneginf(self.logits.gather(1, tokens).cpu().double().numpy()), -np.inf, gains)

    def gain(self, row: int, token: int) -> float:
        ruled_out = self.logits[row, token] == -np.inf
        return -np.inf if ruled_out else float(self.said[row, token] - self.normaliser[row])


def as_ints(tokens: Tensor) -> Ints:
    ints: Ints = tokens.cpu().numpy()
    return ints


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each sentence, best first: (B, C) each."""

    scores: Floats  # the sums of log-probabilities
    parents: Ints  # which row of the sentence goes on
    tokens: Ints
