"""Where a token stands. Attention alone cannot tell: without a position, a sentence and its shuffle look the same.

Three ways in: a code added to the embeddings (sinusoidal, learned), a rotation of queries and keys (rotary), a bias
added to the scores (relative, ALiBi). All take positions as whole numbers, (T,) or (B, T), so that a cached step, a
packed document and a whole sentence are one case.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Layout = Literal["interleaved", "halves"]


def frequencies(n: int, base: float) -> Tensor:
    """base^(-i/n) for i < n: the n wavelengths go geometrically from 2 pi to almost 2 pi base."""
    # In float64: a rounded frequency times a position of a few thousand is a visible phase error.
    return base ** (-torch.arange(n, dtype=torch.float64) / n)


def sinusoidal_code(
    positions: Tensor, d_model: int, *, layout: Layout = "interleaved", base: float = 10_000.0
) -> Tensor:
    """Section 3.5 of the paper: sine and cosine at d_model / 2 frequencies, for any position. (..., T) -> (..., T, D).

    "interleaved" puts sine and cosine in turn, as the paper does; "halves" all sines first, then all cosines.
    """
    if d_model % 2:
        raise ValueError(f"sinusoidal positions come in pairs of sine and cosine: d_model={d_model} must be even")
    angles = positions[..., None].double() * frequencies(d_model // 2, base).to(positions.device)
    if layout == "interleaved":
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Sinusoidal(nn.Module):
    """x + the sinusoidal code. Nothing to learn, no last position."""

    def __init__(self, *, layout: Layout = "interleaved") -> None:
        super().__init__()
        self.layout: Layout = layout

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # (B, T, D) -> (B, T, D)
        return x + sinusoidal_code(positions, x.size(-1), layout=self.layout).to(x.dtype)


class Learned(nn.Module):
    """x + a learned row for each position; there is no row beyond `max_len`."""

    def __init__(self, *, max_len: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        code: Tensor = self.table(positions)
        return x + code


class NoPositions(nn.Module):
    """x as it is: positions come in elsewhere, or not at all."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class RopeScaling:
    """Rotary frequencies for texts longer than a model was first trained on.

    Without `original_max_len`, every frequency is divided by `factor`: position interpolation (Chen et al. 2023).
    With it, the length of the first training, as in Llama 3.1: frequencies of at least `high_freq_factor` turns within
    that length stay, those with at most `low_freq_factor` are divided by `factor`, and those between are interpolated.
    """

    factor: float
    original_max_len: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __call__(self, turns: Tensor) -> Tensor:
        if self.original_max_len is None:
            return turns / self.factor
        rounds = self.original_max_len * turns / (2 * math.pi)
        kept = ((rounds - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return turns * kept + turns / self.factor * (1 - kept)


class Rotary(nn.Module):
    """Turn each pair of numbers by an angle that grows with the position, so that q . k depends on the distance alone.

    Su et al. 2021. "halves" pairs number i with number i + K/2 (as Llama does), "interleaved" pairs neighbours.
    """

    def __init__(
        self, *, d_head: int, layout: Layout = "halves", base: float = 10_000.0, scaling: RopeScaling | None = None
    ) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions turn pairs of numbers: d_head={d_head} must be even")
        self.d_head = d_head
        self.layout: Layout = layout
        self.base = base
        self.scaling = scaling

    def cos_sin(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each pair's angle: (T,) or (B, T) -> (T, K/2) or (B, 1, T, K/2) twice."""
        turns = frequencies(self.d_head // 2, self.base)
        turns = turns if self.scaling is None else self.scaling(turns)
        angles = positions[..., None].double() * turns.to(positions.device)
        if angles.dim() == 3:  # one row of positions for each sentence
            angles = angles[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # (B, H, T, K) -> (B, H, T, K)
        return self.rotate(x, *self.cos_sin(positions, x.dtype))

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x, turned by angles whose cosine and sine are known."""
        if self.layout == "halves":
            first, second = x.chunk(2, dim=-1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


class RelativeBias(nn.Module):
    """T5's relative positions: a learned number for each head and each bucket of distances.

    Half of the buckets are single distances, the other half widen logarithmically up to `max_distance`. In an encoder
    one half looks back and the other forward; a decoder only looks back.
    """

    def __init__(self, *, n_heads: int, bidirectional: bool, n_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        self.table = nn.Embedding(n_buckets, n_heads)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """(..., T), (..., S) -> (..., H, T, S)."""
        distances = key_positions[..., None, :] - query_positions[..., :, None]
        values: Tensor = self.table(self.bucket(distances))  # (..., T, S, H)
        return values.movedim(-1, -3)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of key position - query position."""
        n_buckets = self.n_buckets
        bucket = torch.zeros_like(distance)
        if self.bidirectional:
            n_buckets //= 2
            bucket = (distance > 0) * n_buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        n_exact = n_buckets // 2
        # float32 as in the reference: at a bucket's edge another rounding would choose another bucket.
        growth = (distance.clamp(min=1).float() / n_exact).log() / math.log(self.max_distance / n_exact)
        far = (n_exact + (growth * (n_buckets - n_exact)).long()).clamp(max=n_buckets - 1)
        return bucket + torch.where(distance < n_exact, distance, far)


class Alibi(nn.Module):
    """ALiBi (Press et al. 2022): each head subtracts its own slope times the distance. Nothing to learn."""

    def __init__(self, *, n_heads: int) -> None:
        super().__init__()
        self.slopes = _alibi_slopes(n_heads)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """(..., T), (..., S) -> (..., H, T, S)."""
        distances = (key_positions[..., None, :] - query_positions[..., :, None]).abs()
        slopes = torch.tensor(self.slopes, device=distances.device, dtype=torch.get_default_dtype())
        return -slopes[:, None, None] * distances[..., None, :, :]


def _alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), … for a power of two; otherwise those, and every second one of the next power of two."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (n_heads - power), 2)]
