"""Adaptive computation time of a Universal Transformer: the weight of each step for each token."""

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.packed_arrays import Packed, pack
from heedful.insight.trace import M, Trace
from heedful.models.universal import Universal
from heedful.nn.adaptive_computation import Recurrence


@dataclass(frozen=True)
class HaltingWeights:
    """The weight of each step in the output, (steps, tokens): a column sums to one, steps after halting weigh 0."""

    encoder: Packed
    decoder: Packed


def halting_of(t: Trace[M]) -> HaltingWeights | None:
    """Return the step weights of a traced pass, or None if the model has no halting."""
    model = t.model
    if not isinstance(model, Universal) or model.config.halting == "none":
        return None
    return HaltingWeights(
        encoder=pack(_weights(model.encoder_steps, t.calls["encoder_steps.halting"]), "u16"),
        decoder=pack(_weights(model.decoder_steps, t.calls["decoder_steps.halting"]), "u16"),
    )


def _weights(steps: Recurrence, chances: list[Tensor]) -> Tensor:
    """Compute the weight of each step: its halting probability, and the remainder for the last step (Graves 2016)."""
    assert steps.halting is not None
    spent = torch.zeros_like(chances[0])  # (1, T, 1)
    running = torch.ones_like(spent, dtype=torch.bool)
    weights = []
    for step, chance in enumerate(chances):
        stops = running & ((spent + chance > steps.halting.threshold) | (step == steps.n_steps - 1))
        weights.append(torch.where(stops, 1 - spent, chance) * running)
        spent, running = spent + weights[-1], running & ~stops
    return torch.stack(weights)[:, 0, :, 0]
