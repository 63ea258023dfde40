"""Position codes. Without them, attention cannot distinguish a sentence from any permutation of its tokens.

There are three kinds: codes that are added to the embeddings (sinusoidal, learned), rotations of queries and keys
(rotary), and biases of the scores (relative, ALiBi). All take positions as whole numbers, (T,) or (B, T), so that a
whole sentence, a cached step and packed documents need no special cases.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Layout = Literal["interleaved", "halves"]


def frequencies(n: int, base: float) -> Tensor:
    """Return base^(-i/n) for i < n, in float64: wavelengths grow geometrically from 2 pi to almost 2 pi base."""
    # A rounded frequency times a position of a few thousand would be a visible phase error.
    return base ** (-torch.arange(n, dtype=torch.float64) / n)


def sinusoidal_code(
    positions: Tensor, d_model: int, *, layout: Layout = "interleaved", base: float = 10_000.0
) -> Tensor:
    """Return sine and cosine at d_model / 2 frequencies for each position (section 3.5): (..., T) -> (..., T, D).

    "interleaved" alternates sines and cosines, as the paper does; "halves" has all sines first, then all cosines.
    """
    if d_model % 2:
        raise ValueError(f"sinusoidal positions are pairs of sine and cosine: d_model={d_model} must be even")
    angles = positions[..., None].double() * frequencies(d_model // 2, base).to(positions.device)
    if layout == "interleaved":
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Sinusoidal(nn.Module):
    """Add the sinusoidal code to the embeddings: no parameters, and no limit of the length."""

    def __init__(self, *, layout: Layout = "interleaved") -> None:
        super().__init__()
        self.layout: Layout = layout

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # (B, T, D) -> (B, T, D)
        return x + sinusoidal_code(positions, x.size(-1), layout=self.layout).to(x.dtype)


class Learned(nn.Module):
    """Add a learned vector for each position below `max_len` to the embeddings."""

    def __init__(self, *, max_len: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        code: Tensor = self.table(positions)
        return x + code


class NoPositions(nn.Module):
    """Return the embeddings unchanged, if positions enter elsewhere or not at all."""

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

    def __call__(self, freqs: Tensor) -> Tensor:
        if self.original_max_len is None:
            return freqs / self.factor
        turns = self.original_max_len * freqs / (2 * math.pi)
        kept = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return freqs * kept + freqs / self.factor * (1 - kept)


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021): rotate pairs of q and k by angles that grow with the position.

    So q . k depends on the distance of the two positions only. "halves" pairs element i with element i + K/2, as Llama
    does; "interleaved" pairs neighbours.
    """

    def __init__(
        self, *, d_head: int, layout: Layout = "halves", base: float = 10_000.0, scaling: RopeScaling | None = None
    ) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions rotate pairs of numbers: d_head={d_head} must be even")
        self.d_head = d_head
        self.layout: Layout = layout
        self.base = base
        self.scaling = scaling

    def cos_sin(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each pair's angle: (T,) or (B, T) -> (T, K/2) or (B, 1, T, K/2) twice."""
        freqs = frequencies(self.d_head // 2, self.base)
        freqs = freqs if self.scaling is None else self.scaling(freqs)
        angles = positions[..., None].double() * freqs.to(positions.device)
        if angles.dim() == 3:  # each sentence has its own positions
            angles = angles[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # (B, H, T, K) -> (B, H, T, K)
        return self.rotate(x, *self.cos_sin(positions, x.dtype))

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate x (B, H, T, K) by the angles with these cosines and sines."""
        if self.layout == "halves":
            first, second = x.chunk(2, dim=-1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


class RelativeBias(nn.Module):
    """T5's relative positions: a learned bias for each head and each bucket of distances.

    Half of the buckets hold one distance each; the other half widen logarithmically up to `max_distance`. An encoder
    (`bidirectional`) has half of its buckets for each direction; a decoder attends only backwards.
    """

    def __init__(self, *, n_heads: int, bidirectional: bool, n_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        self.table = nn.Embedding(n_buckets, n_heads)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the biases of the scores: (..., T), (..., S) -> (..., H, T, S)."""
        distances = key_positions[..., None, :] - query_positions[..., :, None]
        values: Tensor = self.table(self.bucket(distances))  # (..., T, S, H)
        return values.movedim(-1, -3)

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance, key position - query position."""
        n_buckets = self.n_buckets
        bucket = torch.zeros_like(distance)
        if self.bidirectional:
            n_buckets //= 2
            bucket = (distance > 0) * n_buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        n_exact = n_buckets // 2
        # float32 as in the reference: another rounding at the edge of a bucket would choose another bucket.
        growth = (distance.clamp(min=1).float() / n_exact).log() / math.log(self.max_distance / n_exact)
        far = (n_exact + (growth * (n_buckets - n_exact)).long()).clamp(max=n_buckets - 1)
        return bucket + torch.where(distance < n_exact, distance, far)


class Alibi(nn.Module):
    """ALiBi (Press et al. 2022): each head subtracts its slope times the distance. No parameters."""

    def __init__(self, *, n_heads: int) -> None:
        super().__init__()
        self.slopes = _alibi_slopes(n_heads)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the biases of the scores: (..., T), (..., S) -> (..., H, T, S)."""
        distances = (key_positions[..., None, :] - query_positions[..., :, None]).abs()
        slopes = torch.tensor(self.slopes, device=distances.device, dtype=torch.get_default_dtype())
        return -slopes[:, None, None] * distances[..., None, :, :]


def _alibi_slopes(n_heads: int) -> list[float]:
    """Return 2^(-8/n), 2^(-16/n), …; if n is no power of two, add every second slope of the next power of two."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (n_heads - power), 2)]
