"""Muon (Jordan et al. 2024): the update of a matrix is its momentum, made orthogonal; AdamW for everything else.

In Adam's update of a matrix a few strong directions dominate; in Muon's all directions have the same size. torch.optim
has a Muon that always orthogonalises in bfloat16, which takes ten times as long as float32 on a CPU without bfloat16
units.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.nn.heads import ClassificationHead, MaskedHead, TokenClassifier, VocabularyHead
from heedful.training.distributed import full_tensor, shard_like

QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: five rounds bring all singular values to between 0.7 and 1.2
ROUNDS = 5
HEADS = (VocabularyHead, MaskedHead, ClassificationHead, TokenClassifier)
ADAMW_RMS = 0.2  # root mean square of AdamW's updates (Liu et al. 2025); scaled to it, both can use one rate


class Muon(torch.optim.Optimizer):
    """Muon for some matrices and AdamW for all other parameters, as one optimiser with one state."""

    def __init__(
        self,
        matrices: Sequence[Tensor],
        adamw: torch.optim.AdamW | None,
        *,
        multipliers: Sequence[float],
        momentum: float,
        weight_decay: float,
        bfloat16: bool = False,
    ) -> None:
        """Join both optimisers.

        adamw: None if all other parameters are frozen.
        multipliers: factors of the updates of each matrix (`lr_multipliers`).
        bfloat16: orthogonalise in bfloat16; the result is only nearly orthogonal in any precision.
        """
        super().__init__(matrices, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})
        self.multipliers = list(multipliers)
        self.bfloat16 = bfloat16
        self.adamw = adamw
        if adamw is not None:
            adamw.state = self.state  # one state for checkpoints
            self.param_groups += adamw.param_groups  # `set_rate` sets the rate of both

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        assert closure is None, "the trainer calls backward itself"
        group = self.param_groups[0]
        pairs = [(p, m) for p, m in zip(group["params"], self.multipliers, strict=True) if p.grad is not None]
        momenta = [self._momentum(parameter, group["momentum"]) for parameter, _ in pairs]
        if self.bfloat16:
            momenta = [matrix.bfloat16() for matrix in momenta]
        for (parameter, multiplier), update in zip(pairs, orthogonalise_all(momenta), strict=True):
            # An orthogonal matrix has a root mean square of 1/sqrt(n).
            scale = multiplier * ADAMW_RMS * max(parameter.shape) ** 0.5
            parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
            parameter.add_(shard_like(parameter, update), alpha=-group["lr"] * scale)
        if self.adamw is not None:
            self.adamw.step()

    def _momentum(self, parameter: Tensor, decay: float) -> Tensor:
        """Update the running mean of gradients; return it, moved once more towards the newest gradient (Nesterov)."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1.0 - decay)
        return full_tensor(parameter.grad.lerp(state["momentum"], decay))


def matrices_within(model: nn.Module) -> list[Tensor]:
    """Return the weights of linear layers inside the model: no embeddings and no output layers."""
    excluded = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, *HEADS))
        for parameter in module.parameters()
    }
    inside = (module.weight for module in model.modules() if isinstance(module, nn.Linear))
    return [p for p in dict.fromkeys(inside) if id(p) not in excluded and p.requires_grad]


def orthogonalise_all(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Orthogonalise each matrix; matrices of one shape are multiplied together as a batch."""
    by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, matrix in enumerate(matrices):
        by_shape[tuple(matrix.shape)].append(number)
    result: list[Tensor] = list(matrices)
    for numbers in by_shape.values():
        stacked = orthogonalise(torch.stack([matrices[number] for number in numbers]))
        for number, matrix in zip(numbers, stacked, strict=True):
            result[number] = matrix
    return result


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return nearly U V^T of matrices U S V^T (n, R, C), by Newton-Schulz iteration: matrix products alone."""
    a, b, c = QUINTIC
    tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
