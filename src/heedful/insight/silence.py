"""A head that looks as before and says nothing."""

from torch import Tensor

from heedful.nn.attention import Attend


class Silenced:
    """An attend some of whose heads say nothing, though they look as before."""

    def __init__(self, attend: Attend, silent: list[int]) -> None:
        self.attend = attend
        self.silent = silent

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        heads = self.attend(q, k, v, mask, scale=scale, bias=bias, dropout=dropout).clone()  # (B, H, T, K)
        heads[:, self.silent] = 0.0
        return heads
