"""Depth as time: when positions stop, what they say, what it costs."""

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference, numbers
from heedful.nn.adaptive_computation import ActOutput, Halting, Recurrence
from heedful.nn.positions import sinusoidal_code

D = 6
POSITIONS = torch.arange(4)


def bend(x: Tensor, step: int) -> Tensor:
    return torch.tanh(x + 0.1 * step)


def code(step: int) -> Tensor:
    return sinusoidal_code(POSITIONS, D) + sinusoidal_code(torch.full((4,), step), D)


def halting(*, bias: float, weight: float = 0.0, threshold: float = 0.99) -> Halting:
    part = Halting(d_model=D, threshold=threshold).double()
    with torch.no_grad():
        part.linear.weight.fill_(weight)
        part.linear.bias.fill_(bias)
    return part


def test_without_halting_the_layer_is_applied_n_steps_times() -> None:
    x = numbers(2, 4, D)
    thought = Recurrence(n_steps=3)(x, POSITIONS, bend)
    for step in range(3):
        x = bend(x + code(step), step)
    assert largest_difference(thought.states, x) < 1e-12
    assert thought.steps.unique().tolist() == [3.0]
    assert not thought.remainder.any()


def by_hand(x: Tensor, part: Halting, n_steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Position by position, as Graves writes it."""
    outputs, counts, left = torch.zeros_like(x), x.new_zeros(x.shape[:2]), x.new_zeros(x.shape[:2])
    for b in range(x.size(0)):
        for t in range(x.size(1)):
            state, total = x[b, t], 0.0
            for step in range(n_steps):
                placed = state + code(step)[t]
                chance = float(part(placed))
                last = total + chance > part.threshold or step == n_steps - 1
                weight = 1 - total if last else chance
                state = bend(placed, step)
                outputs[b, t] += weight * state
                counts[b, t] += 1
                total += weight
                if last:
                    left[b, t] = weight
                    break
    return outputs, counts, left


@pytest.mark.parametrize("all_steps", [False, True])
def test_each_position_halts_independently(all_steps: bool) -> None:
    part = fill(Halting(d_model=D))
    x = numbers(2, 4, D)
    with torch.no_grad():
        thought = Recurrence(n_steps=5, halting=part)(x, POSITIONS, bend, all_steps=all_steps)
        states, steps, remainder = by_hand(x, part, 5)
    assert largest_difference(thought.states, states) < 1e-12
    assert thought.steps.tolist() == steps.tolist()
    assert largest_difference(thought.remainder, remainder) < 1e-12
    assert len(thought.steps.unique()) > 1, "some stop before others"


def test_halted_positions_keep_their_states() -> None:
    seen: list[Tensor] = []

    def watched(x: Tensor, step: int) -> Tensor:
        seen.append(x - code(step))
        return bend(x, step)

    with torch.no_grad():
        thought = Recurrence(n_steps=5, halting=fill(Halting(d_model=D, threshold=0.6)))(
            numbers(2, 4, D), POSITIONS, watched, all_steps=True
        )
    assert len(seen) == 5
    for row, place in ((row, place) for row in range(2) for place in range(4)):
        last = int(thought.steps[row, place])
        states = [state[row, place] for state in seen]
        for before, after in zip(states[last:], states[last + 1 :], strict=False):
            assert largest_difference(before, after) < 1e-12
        if last > 1:
            assert largest_difference(states[last - 1], states[last - 2]) > 1e-3
    assert int(thought.steps.min()) < 4


def test_a_high_halting_probability_stops_at_once_and_a_low_one_never() -> None:
    x = numbers(1, 4, D)
    sure = Recurrence(n_steps=5, halting=halting(bias=20.0))(x, POSITIONS, bend)
    assert sure.steps.tolist() == [[1.0] * 4]
    assert largest_difference(sure.states, bend(x + code(0), 0)) < 1e-6
    unsure = Recurrence(n_steps=5, halting=halting(bias=-20.0))(x, POSITIONS, bend)
    assert unsure.steps.tolist() == [[5.0] * 4]
    assert float(unsure.remainder.min()) > 0.99


def test_the_ponder_cost_has_a_gradient_and_can_be_reduced() -> None:
    part = halting(bias=-1.0)
    thought = Recurrence(n_steps=4, halting=part)(numbers(1, 4, D), POSITIONS, bend)
    real = torch.tensor([[True, True, False, False]])
    cost = thought.ponder(real)
    assert float(cost) == pytest.approx(float((thought.steps + thought.remainder)[:, :2].sum()))
    cost.backward()
    assert float(part.linear.bias.grad) < 0, "a larger chance of stopping costs less"


def test_the_cost_of_nothing_is_zero() -> None:
    nothing = ActOutput(numbers(1, 2, D), torch.ones(1, 2), torch.ones(1, 2))
    assert float(nothing.ponder(torch.zeros(1, 2, dtype=torch.bool))) == 0.0


def test_a_threshold_outside_of_0_to_1_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="threshold"):
        Halting(d_model=D, threshold=1.0)
