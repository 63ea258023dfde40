"""Normalisation: mean and variance brought back to a fixed place, so that deep stacks train.

Every norm is called as norm(x, real): `real` (B, T), True = a real token, matters only to the one that mixes tokens.
"""

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Per token, over its D numbers: no other token, and no other sentence, has a say."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """LayerNorm without the mean: x / rms(x) x weight (Zhang & Sennrich 2019)."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class BatchNorm(nn.Module):
    """Per feature, over all real tokens of the batch; running statistics when not training.

    Here to compare with: what a token becomes depends on the batch that it happens to be in.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, d_model: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))
        self.eps = eps
        self.momentum = momentum

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # (B, T, D) -> (B, T, D)
        mean, var = self.running_mean, self.running_var
        if self.training:
            tokens = x.flatten(0, 1) if real is None else x[real]  # (n real tokens, D)
            if len(tokens) > 0:  # a rank without rows has no statistics, only 0/0
                mean, var = tokens.mean(dim=0), tokens.var(dim=0, correction=0)
                self._remember(mean.detach(), var.detach(), len(tokens))
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor, n: int) -> None:
        unbiased = var * n / max(n - 1, 1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(unbiased, self.momentum)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm] | type[BatchNorm]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "batch": BatchNorm,
}
