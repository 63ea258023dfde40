"""Dropout in one place, so that it can be made faster in one place."""

import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Each number is zero with probability p while training, and the rest grows by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"a dropout probability lies in [0, 1), found {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p) if self.training and self.p > 0.0 else x
