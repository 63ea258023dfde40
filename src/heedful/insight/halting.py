"""How long a Universal Transformer thinks about each token: which steps it takes, and what each step counts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.insight.packed_arrays import Packed, pack
from heedful.insight.trace import M, Trace
from heedful.models.universal import Universal
from heedful.nn.adaptive_computation import Recurrence


@dataclass(frozen=True)
class Halting:
    """The weight of each step in what comes out, (steps, tokens): a column sums to one, zeros follow where it ended."""

    encoder: Packed
    decoder: Packed


def halting_of(t: Trace[M]) -> Halting | None:
    """Of a traced pass; None where every token goes through every layer."""
    model = t.model
    if not isinstance(model, Universal) or model.config.halting == "none":
        return None
    return Halting(
        encoder=pack(_weights(model.encoder_steps, t.calls["encoder_steps.halting"]), "u16"),
        decoder=pack(_weights(model.decoder_steps, t.calls["decoder_steps.halting"]), "u16"),
    )


def _weights(steps: Recurrence, chances: list[Tensor]) -> Tensor:
    """Adaptive computation time's rule: each step counts as much as it was likely to be the last; the last, what is
    left (Graves 2016, as in nn/adaptive_computation.py).
    """
    assert steps.halting is not None
    spent = torch.zeros_like(chances[0])  # (1, T, 1)
    running = torch.ones_like(spent, dtype=torch.bool)
    weights = []
    for step, chance in enumerate(chances):
        stops = running & ((spent + chance > steps.halting.threshold) | (step == steps.n_steps - 1))
        weights.append(torch.where(stops, 1 - spent, chance) * running)
        spent, running = spent + weights[-1], running & ~stops
    return torch.stack(weights)[:, 0, :, 0]
