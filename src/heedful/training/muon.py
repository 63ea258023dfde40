"""Muon (Jordan et al. 2024): the momentum of a matrix, made orthogonal, is its update; AdamW for everything else.

Adam lets a few strong directions of a matrix rule its update; here all of them change alike. torch has a Muon of its
own, which always orthogonalises in bfloat16: on a processor without such units that takes ten times as long as float32.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.nn.heads import Classifier, MaskedHead, TokenClassifier, VocabularyHead
from heedful.training.distributed import full_tensor, shard_like

QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: five rounds bring any singular value to between 0.7 and 1.2
ROUNDS = 5
HEADS = (VocabularyHead, MaskedHead, Classifier, TokenClassifier)
ADAMW_RMS = 0.2  # the root mean square of AdamW's updates (Liu et al. 2025): scaled to it, one rate serves both


class Muon(torch.optim.Optimizer):
    """Muon for the given matrices and the given AdamW for the rest, as one optimiser with one memory."""

    def __init__(
        self,
        matrices: Sequence[Tensor],
        adamw: torch.optim.AdamW | None,
        *,
        sizes: Sequence[float],
        momentum: float,
        weight_decay: float,
        bfloat16: bool = False,
    ) -> None:
        """`adamw`: None where the rest is frozen.
        `sizes`: how large the numbers of each matrix are by design (`magnitudes`), and so its updates.
        `bfloat16`: orthogonalise in such numbers. The result is only nearly orthogonal in any.
        """
        super().__init__(matrices, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})
        self.sizes = list(sizes)
        self.bfloat16 = bfloat16
        self.adamw = adamw
        if adamw is not None:
            adamw.state = self.state  # so that a checkpoint finds everything in one place
            self.param_groups += adamw.param_groups  # so that a new rate reaches both

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        assert closure is None, "the loop calls backward itself"
        group = self.param_groups[0]
        sized = [(p, size) for p, size in zip(group["params"], self.sizes, strict=True) if p.grad is not None]
        ahead = [self._momentum(parameter, group["momentum"]) for parameter, _ in sized]
        if self.bfloat16:
            ahead = [matrix.bfloat16() for matrix in ahead]
        for (parameter, size), update in zip(sized, orthogonalise_all(ahead), strict=True):
            # An orthogonal matrix has a root mean square of 1/sqrt(n).
            length = size * ADAMW_RMS * max(parameter.shape) ** 0.5
            parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
            parameter.add_(shard_like(parameter, update), alpha=-group["lr"] * length)
        if self.adamw is not None:
            self.adamw.step()

    def _momentum(self, parameter: Tensor, decay: float) -> Tensor:
        """The mean of past gradients, moved once more towards the newest (Nesterov)."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1.0 - decay)
        return full_tensor(parameter.grad.lerp(state["momentum"], decay))


def matrices_within(model: nn.Module) -> list[Tensor]:
    """The weights of linear layers but for those that choose words or labels: rows of these are words or labels."""
    outside = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, *HEADS))
        for parameter in module.parameters()
    }
    inside = (module.weight for module in model.modules() if isinstance(module, nn.Linear))
    return [p for p in dict.fromkeys(inside) if id(p) not in outside and p.requires_grad]


def orthogonalise_all(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Each matrix orthogonalised; those of one shape in one batch of products."""
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
    """Nearly the U V^T of each matrix = U S V^T (n, R, C), by Newton-Schulz iteration: products alone."""
    a, b, c = QUINTIC
    tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
