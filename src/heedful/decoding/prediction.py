"""What a step says of the next token: what may be chosen, and what it counts."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from heedful.decoding.board import Floats, Ints


@dataclass(frozen=True)
class Prediction:
    """Filters change what is chosen, never what it counts: scores are the model's own log-probabilities."""

    logits: Tensor  # (N, V), after the filters
    said: Tensor  # (N, V), as the model said it; the same tensor if there is no filter
    normaliser: Tensor  # (N,): log-sum-exp of what it said

    def gains(self, tokens: Tensor) -> Floats:
        """The log-probabilities of some tokens of each row, (N, k) -> (N, k); minus infinity for what is ruled out."""
        gains: Floats = (self.said.gather(1, tokens) - self.normaliser[:, None]).double().cpu().numpy()
        if self.logits is not self.said:
            gains = np.where(np.isneginf(self.logits.gather(1, tokens).double().cpu().numpy()), -np.inf, gains)
        return gains

    def gain(self, row: int, token: int) -> float:
        ruled_out = self.logits[row, token] == -np.inf
        return -np.inf if ruled_out else float(self.said[row, token] - self.normaliser[row])


def as_ints(tokens: Tensor) -> Ints:
    ints: Ints = tokens.cpu().numpy()
    return ints
