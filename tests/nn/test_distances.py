"""Shifted passes = gathering the keys, and their derivatives are right to the second order."""

import pytest
import torch
from torch import Tensor

from heedful.nn.sparse_attention import gathered_mix, gathered_scores

DISTANCES = [0, -1, 3, -4, 6, 9]  # 9 reaches beyond the end of every sequence here


def draw(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def gathered(x: Tensor) -> Tensor:
    """x[t + d], zero outside: (B, H, T, K) -> (B, H, T, few, K)."""
    length = x.size(2)
    wanted = torch.arange(length)[:, None] + torch.tensor(DISTANCES)
    inside = (wanted >= 0) & (wanted < length)
    return x[:, :, wanted.clamp(0, length - 1)] * inside[..., None]


@pytest.mark.parametrize("length", [1, 4, 8])
def test_dots_are_those_of_gathered_keys(length: int) -> None:
    q, k = draw(2, 3, length, 4), draw(2, 3, length, 5)[..., :4]
    torch.testing.assert_close(gathered_scores(q, k, DISTANCES), (q[:, :, :, None] * gathered(k)).sum(-1))


@pytest.mark.parametrize("length", [1, 4, 8])
def test_mixtures_are_those_of_gathered_values(length: int) -> None:
    weights, v = draw(2, 3, length, len(DISTANCES)), draw(2, 3, length, 5)
    torch.testing.assert_close(gathered_mix(weights, v, DISTANCES), (weights[..., None] * gathered(v)).sum(-2))


def test_derivatives_of_first_and_second_order() -> None:
    q, k, weights = draw(1, 2, 5, 3), draw(1, 2, 5, 3), draw(1, 2, 5, len(DISTANCES))
    assert torch.autograd.gradcheck(lambda a, b: gathered_scores(a, b, DISTANCES), (q, k))
    assert torch.autograd.gradcheck(lambda a, b: gathered_mix(a, b, DISTANCES), (weights, k))
    assert torch.autograd.gradgradcheck(lambda a, b: gathered_scores(a, b, DISTANCES), (q, k))
    assert torch.autograd.gradgradcheck(lambda a, b: gathered_mix(a, b, DISTANCES), (weights, k))


def test_the_size_of_the_parts_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, weights = draw(2, 2, 11, 4), draw(2, 2, 11, 4), draw(2, 2, 11, len(DISTANCES))
    whole = gathered_scores(q, k, DISTANCES), gathered_mix(weights, k, DISTANCES)
    for rows in (1, 3, 11):
        monkeypatch.setattr("heedful.nn.sparse_attention.IN_CACHE", rows * 2 * 2 * 4)
        torch.testing.assert_close((gathered_scores(q, k, DISTANCES), gathered_mix(weights, k, DISTANCES)), whole)
