"""Norms. Each is called as norm(x, real), where `real` (B, T), True = a real token, matters only to BatchNorm."""

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Normalize each token over its D elements, independently of other tokens."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """LayerNorm without mean and bias: x / rms(x) * weight (Zhang & Sennrich 2019)."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class BatchNorm(nn.Module):
    """Normalize each feature over all real tokens of the batch; in evaluation mode, by running statistics.

    It is here for comparison: a token's result depends on the other sentences of its batch.
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
            if len(tokens) > 0:  # a rank without rows would compute 0/0
                mean, var = tokens.mean(dim=0), tokens.var(dim=0, correction=0)
                self._update_running(mean.detach(), var.detach(), len(tokens))
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias

    @torch.no_grad()
    def _update_running(self, mean: Tensor, var: Tensor, n: int) -> None:
        unbiased = var * n / max(n - 1, 1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(unbiased, self.momentum)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm] | type[BatchNorm]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "batch": BatchNorm,
}
