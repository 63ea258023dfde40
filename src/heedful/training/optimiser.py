"""How gradients become updates."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError


@dataclass(frozen=True)
class OptimiserSettings:
    kind: Literal["adamw"] = "adamw"
    lr: float | None = None  # the highest rate; by default the paper's, (d_model x warmup_steps)^-0.5
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0  # of matrices; biases and norms never decay
    max_grad_norm: float = 1.0  # longer gradients are shortened to this length; 0: never

    def __post_init__(self) -> None:
        if self.lr is not None and self.lr <= 0:
            raise UserError(f"'optimiser.lr' must be positive, found {self.lr}")
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise UserError(f"'optimiser.{name}' must lie in [0, 1), found {getattr(self, name)}")
        if self.weight_decay < 0 or self.max_grad_norm < 0:
            raise UserError("'optimiser.weight_decay' and 'optimiser.max_grad_norm' must not be negative")


def peak_rate(settings: OptimiserSettings, *, d_model: int, warmup_steps: int) -> float:
    return settings.lr or (d_model * max(warmup_steps, 1)) ** -0.5


def make_optimiser(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """AdamW in its fused form: one pass over memory for each parameter."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,  # set before every step
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """The length of the whole gradient; where it is longer than `max_norm`, it is shortened to that."""
    parameters = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if max_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
