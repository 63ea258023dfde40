"""What an encoder leaves for a decoder: the same in every encoder-decoder."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """One tensor for all decoder layers, or one for each, and which keys are real."""

    states: list[Tensor]  # each (B, S, D)
    mask: Tensor | None  # (B, 1, 1, S)

    def rows(self, index: Tensor) -> "Memory":
        """The memory of the given sentences, in that order."""
        return Memory([state[index] for state in self.states], None if self.mask is None else self.mask[index])
