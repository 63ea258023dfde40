"""Adaptive computation time (Graves 2016), as in the Universal Transformer (Dehghani et al. 2018).

One layer is applied several times. At every step, each position computes a probability of halting. When the sum of its
probabilities exceeds a threshold, the position halts: its state no longer changes. Its output is the mean of its
states, weighted by the probabilities; the weight of the last state is the remainder to 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .positions import sinusoidal_code

LayerFn = Callable[[Tensor, int], Tensor]  # (states, number of the step) -> states after the layer


class Halting(nn.Module):
    """The probability that a position halts, computed from its state: (B, T, D) -> (B, T, 1)."""

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
    """The output of a recurrence and its cost: the number of steps of each position, and its last weight."""

    states: Tensor  # (B, T, D)
    steps: Tensor  # (B, T)
    remainder: Tensor  # (B, T): the only part of the cost that has a gradient

    def ponder(self, real: Tensor | None = None) -> Tensor:
        """Return the ponder cost, steps + remainder, summed over the real positions (B, T).

        It is a sum, not a mean, so that it does not depend on how a batch is split.
        """
        cost = self.steps + self.remainder
        return (cost if real is None else cost * real).sum()


class Recurrence(nn.Module):
    """Apply one layer up to `n_steps` times, each time after adding codes of the position and of the step.

    Without `halting`, all positions take exactly `n_steps` steps.
    """

    def __init__(self, *, n_steps: int, halting: Halting | None = None) -> None:
        super().__init__()
        self.n_steps = n_steps
        self.halting = halting

    def forward(self, x: Tensor, positions: Tensor, layer_fn: LayerFn, *, all_steps: bool = False) -> ActOutput:
        """Apply `layer_fn` to the states x (B, T, D).

        With `all_steps`, continue after all positions have halted: a cache must hold their keys for every step.
        """
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
            x = torch.where(running, after, x)  # halted positions keep their states
            running = running & ~stops
            if not all_steps and not bool(running.any()):
                break
        return ActOutput(mean, steps[..., 0], remainder[..., 0])

    def add_position_and_step(self, x: Tensor, positions: Tensor, step: int) -> Tensor:
        """Add the codes of the positions (T,) or (B, T) and of the step to the states (B, T, D)."""
        steps = torch.full_like(positions, step)
        code = sinusoidal_code(positions, x.size(-1)) + sinusoidal_code(steps, x.size(-1))
        return x + code.to(x.dtype)
