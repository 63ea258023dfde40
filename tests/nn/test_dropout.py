"""Dropout zeroes a share p, scales the rest, and passes gradients through the same mask."""

import pytest
import torch

from heedful.nn.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_share_scale_and_gradient(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.rand(301, 403, dtype=torch.float32).add_(1).to(dtype).requires_grad_()
    y = Dropout(p).train()(x)
    dropped = y == 0
    n = x.numel()
    assert abs(int(dropped.sum()) - p * n) < 5 * (n * p * (1 - p)) ** 0.5
    torch.testing.assert_close(y[~dropped], (x.detach() * (1 / (1 - p)))[~dropped], rtol=1e-2, atol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient == 0, dropped)


def test_neighbours_are_dropped_independently() -> None:
    """Four elements share one draw of 64 bits: none of them may say anything of the others."""
    torch.manual_seed(0)
    kept = (Dropout(0.5).train()(torch.ones(200_000, 4)) > 0).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(4)
    assert correlation.abs().max() < 0.01
    assert (kept.mean(0) - 0.5).abs().max() < 0.01


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1), (2, 3, 7)])
def test_every_shape(shape: tuple[int, ...]) -> None:
    assert Dropout(0.5).train()(torch.ones(shape)).shape == shape


def test_the_seed_alone_decides() -> None:
    results = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        torch.manual_seed(7)
        results.append(Dropout(0.3).train()(torch.ones(1000, 100)))
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_nothing_happens_in_evaluation_or_with_probability_zero() -> None:
    x = torch.ones(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_dropout_needs_a_probability(p: float) -> None:
    with pytest.raises(ValueError, match=str(p)):
        Dropout(p)
