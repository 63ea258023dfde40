"""The loss in chunks equals the formula; label smoothing and KL divergence differ by a constant."""

import pytest
import torch
from torch import Tensor

from deterministic import largest_difference, numbers, whole_numbers
from heedful.training import losses as loss_module
from heedful.training.losses import (
    agreeing_cross_entropy,
    entropy_of_smoothed,
    linear_cross_entropy,
    smoothed_cross_entropy,
    smoothed_kl,
)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use chunks so small that every test has several, and a last one that is not full."""
    monkeypatch.setattr(loss_module, "ROWS", 4)


def inputs(n_rows: int, *, width: int = 6, vocab_size: int = 11) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    states = numbers(n_rows, width, name="states").requires_grad_()
    weight = numbers(vocab_size, width, name="weight").requires_grad_()
    bias = numbers(vocab_size, name="bias").requires_grad_()
    return states, weight, bias, whole_numbers(n_rows, below=vocab_size, name="target")


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("n_rows", [1, 4, 10])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_cross_entropy_is_the_formula(label_smoothing: float, n_rows: int, with_bias: bool) -> None:
    states, weight, bias, target = inputs(n_rows)
    ours = linear_cross_entropy(
        states, weight, target, bias=bias if with_bias else None, label_smoothing=label_smoothing
    )
    logits = states @ weight.T + (bias if with_bias else 0)
    formula = smoothed_cross_entropy(logits, target, label_smoothing)
    assert largest_difference(ours, formula) <= 1e-10
    wanted = [states, weight, bias] if with_bias else [states, weight]
    for a, b in zip(torch.autograd.grad(3 * ours, wanted), torch.autograd.grad(3 * formula, wanted), strict=True):
        assert largest_difference(a, b) <= 1e-10


@pytest.mark.usefixtures("few_rows")
def test_gradcheck() -> None:
    states, weight, bias, target = inputs(6, width=3, vocab_size=5)

    def value(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_cross_entropy(states, weight, target, bias=bias, label_smoothing=0.1)

    assert torch.autograd.gradcheck(value, (states, weight, bias))


def test_no_rows_give_no_loss_and_no_gradient() -> None:
    """A rank without rows contributes zero to a step."""
    states, weight, _, target = inputs(0)
    value = linear_cross_entropy(states, weight, target, label_smoothing=0.1)
    value.backward()
    assert value.item() == 0.0
    assert weight.grad is not None and not weight.grad.any()


def test_smoothed_target_written_out() -> None:
    """-sum_v t(v) log p(v), with t = 0.9 + 0.1 / V for the reference and 0.1 / V for every other word."""
    logits, target = numbers(7, 5, name="logits"), whole_numbers(7, below=5, name="target")
    smoothed = torch.full((7, 5), 0.1 / 5, dtype=torch.float64)
    smoothed[torch.arange(7), target] += 0.9
    expected = -(smoothed * logits.log_softmax(-1)).sum()
    assert largest_difference(smoothed_cross_entropy(logits, target, 0.1), expected) <= 1e-12


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_kl_is_cross_entropy_without_the_entropy_of_the_target(label_smoothing: float) -> None:
    logits, target = numbers(7, 5, name="logits").requires_grad_(), whole_numbers(7, below=5, name="target")
    t = torch.full((7, 5), label_smoothing / 5, dtype=torch.float64)
    t[torch.arange(7), target] += 1 - label_smoothing
    kl = torch.nn.functional.kl_div(logits.log_softmax(-1), t, reduction="sum")
    ours = smoothed_kl(logits, target, label_smoothing)
    assert largest_difference(ours, kl) <= 1e-12
    cross_entropy = smoothed_cross_entropy(logits, target, label_smoothing)
    assert abs((cross_entropy - ours).item() - 7 * entropy_of_smoothed(label_smoothing, 5)) <= 1e-12
    (a,), (b,) = torch.autograd.grad(ours, logits), torch.autograd.grad(cross_entropy, logits)
    assert torch.equal(a, b)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("n_pairs", [1, 2, 9])
@pytest.mark.parametrize("with_bias", [False, True])
def test_agreement_is_the_papers_formula(label_smoothing: float, n_pairs: int, with_bias: bool) -> None:
    states, weight, bias, target = inputs(n_pairs)
    twice = torch.cat([states.detach(), states.detach() * 1.5]).requires_grad_()
    ours = agreeing_cross_entropy(
        twice,
        weight,
        target.repeat(2),
        bias=bias if with_bias else None,
        label_smoothing=label_smoothing,
        agreement=5.0,
    )
    p, q = ((part @ weight.T + (bias if with_bias else 0)).log_softmax(-1) for part in twice.chunk(2))
    both = smoothed_cross_entropy(p, target, label_smoothing) + smoothed_cross_entropy(q, target, label_smoothing)
    kl = torch.nn.functional.kl_div
    apart = kl(p, q, log_target=True, reduction="sum") + kl(q, p, log_target=True, reduction="sum")
    expected = (both + 5.0 * apart / 2) / 2
    assert largest_difference(ours, expected) <= 1e-10
    wanted = [twice, weight, bias] if with_bias else [twice, weight]
    for a, b in zip(torch.autograd.grad(3 * ours, wanted), torch.autograd.grad(3 * expected, wanted), strict=True):
        assert largest_difference(a, b) <= 1e-10


def test_two_passes_over_no_rows_give_no_loss_and_no_gradient() -> None:
    states, weight, _, target = inputs(0)
    value = agreeing_cross_entropy(states, weight, target, label_smoothing=0.1, agreement=5.0)
    value.backward()
    assert value.item() == 0.0
    assert weight.grad is not None and not weight.grad.any()


@pytest.mark.parametrize("agreement", [None, 5.0])
def test_logits_of_a_batch_never_exist(agreement: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor has ROWS rows, whatever the number of tokens."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel())
            return result

    monkeypatch.setattr(loss_module, "ROWS", 8)
    states, weight, _, target = inputs(64, vocab_size=1000)
    with Watch():
        if agreement is None:
            linear_cross_entropy(states, weight, target, label_smoothing=0.1).backward()
        else:
            agreeing_cross_entropy(states, weight, target, label_smoothing=0.1, agreement=agreement).backward()
    assert largest <= 8 * 1000
