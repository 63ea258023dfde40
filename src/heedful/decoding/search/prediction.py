"""What a step says of the next token: what may be chosen, and what it counts."""

from functools import cached_property

import numpy as np
from torch import Tensor

from heedful.decoding.search.board import Floats, Ints


class Prediction:
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
