"""One layer, applied again and again, and a way for each position to say when it has thought enough.

Adaptive computation time (Graves 2016), as the Universal Transformer uses it (Dehghani et al. 2018). At every step each
position gives a probability of stopping; when these add up to almost one it stops, its state stays as it is, and what
it says is the mean of its states, weighted by those probabilities: the last one gets what is left of the whole.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .positions import sinusoidal_code

LayerFn = Callable[[Tensor, int], Tensor]  # the states and the number of the step -> the states after it


class Halting(nn.Module):
    """The probability of stopping here, from a position's own state: (B, T, D) -> (B, T, 1)."""

    def __init__(self, *, d_model: int, threshold: float = 0.99) -> None:
        super().__init__()
        if not 0.0 < threshold < 1.0:
            raise ValueError(f"the threshold lies between 0 and 1, found {threshold}")
        self.linear = nn.Linear(d_model, 1)
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.linear(x))


@dataclass(frozen=True)
class ActOutput:
    """What came of a recurrence, and its cost: how many steps each position took, and what was left at the last."""

    states: Tensor  # (B, T, D)
    steps: Tensor  # (B, T)
    remainder: Tensor  # (B, T): the only part of the cost that has a gradient

    def ponder(self, real: Tensor | None = None) -> Tensor:
        """Steps and remainder, summed over the real positions: a sum is the same however a batch is cut."""
        cost = self.steps + self.remainder
        return (cost if real is None else cost * real).sum()


class Recurrence(nn.Module):
    """At most `n_steps` times: add where and when we are, apply the layer. Without `halting` exactly so often."""

    def __init__(self, *, n_steps: int, halting: Halting | None = None) -> None:
        super().__init__()
        self.n_steps = n_steps
        self.halting = halting

    def forward(self, x: Tensor, positions: Tensor, layer_fn: LayerFn, *, all_steps: bool = False) -> ActOutput:
        """`all_steps`: go on when all have stopped, since a cache must also hold what those who stopped look like."""
        if self.halting is None:
            for step in range(self.n_steps):
                x = layer_fn(self.add_position_and_step(x, positions, step), step)
            steps = x.new_full(x.shape[:2], self.n_steps)
            return ActOutput(x, steps, torch.zeros_like(steps))
        mean = torch.zeros_like(x)
        spent = steps = remainder = x.new_zeros(*x.shape[:2], 1)  # (B, T, 1)
        running = torch.ones_like(spent, dtype=torch.bool)
        for step in range(self.n_steps):
            placed = self.add_position_and_step(x, positions, step)
            chance = self.halting(placed)
            stops = running & ((spent + chance > self.halting.threshold) | (step == self.n_steps - 1))
            weight = torch.where(stops, 1 - spent, chance) * running
            remainder = torch.where(stops, 1 - spent, remainder)
            steps, spent = steps + running, spent + weight
            after = layer_fn(placed, step)
            mean = mean + weight * after
            x = torch.where(running, after, x)  # who has stopped stays as they are
            running = running & ~stops
            if not all_steps and not bool(running.any()):
                break
        return ActOutput(mean, steps[..., 0], remainder[..., 0])

    def add_position_and_step(self, x: Tensor, positions: Tensor, step: int) -> Tensor:
        """With the codes of where and when added."""
        when = torch.full_like(positions, step)
        code = sinusoidal_code(positions, x.size(-1)) + sinusoidal_code(when, x.size(-1))
        return x + code.to(x.dtype)
