"""Norms against their formulas and PyTorch's own; BatchNorm over the real tokens alone."""

import pytest
import torch
from torch import nn

from deterministic import fill, largest_difference, numbers
from heedful.nn.norms import NORMS, BatchNorm, LayerNorm, RMSNorm

REAL = torch.arange(6)[None] < torch.tensor([[6], [2], [4]])


def test_layer_norm_is_per_token():
    norm = fill(LayerNorm(8))
    x = numbers(2, 3, 8) * 3 + 1
    for token, out in zip(x.flatten(0, 1), norm(x).flatten(0, 1), strict=True):
        centred = token - token.mean()
        wanted = centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight + norm.bias
        assert largest_difference(out, wanted) < 1e-12


def test_rms_norm_leaves_the_mean():
    norm = fill(RMSNorm(8))
    x = numbers(2, 3, 8) * 3 + 1
    eps = torch.finfo(x.dtype).eps
    wanted = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * norm.weight
    assert largest_difference(norm(x), wanted) < 1e-12


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_tokens_are_alone_and_padding_is_nothing_special(kind):
    norm = fill(NORMS[kind](8))
    x = numbers(3, 6, 8)
    assert torch.equal(norm(x, REAL), norm(x))
    assert largest_difference(norm(x)[1:2, 3:4], norm(x[1:2, 3:4])) < 1e-15


def twins(d_model: int) -> tuple[BatchNorm, nn.BatchNorm1d]:
    ours = fill(BatchNorm(d_model))
    theirs = nn.BatchNorm1d(d_model).double()
    theirs.load_state_dict({**ours.state_dict(), "num_batches_tracked": torch.tensor(0)})
    return ours, theirs


def test_batch_norm_is_pytorchs_on_the_real_tokens():
    ours, theirs = twins(5)
    ours.train()
    for step in range(4):
        x = numbers(3, 6, 5, name=f"{step}") * 2 + 1
        given, alone = x.clone().requires_grad_(), x[REAL].requires_grad_()
        out, wanted = ours(given, REAL), theirs(alone)
        assert largest_difference(out[REAL], wanted) < 1e-12
        (gradient,) = torch.autograd.grad(out[REAL].pow(3).sum(), given)
        (expected,) = torch.autograd.grad(wanted.pow(3).sum(), alone)
        assert largest_difference(gradient[REAL], expected) < 1e-11
        assert (gradient[~REAL] == 0).all()
        assert largest_difference(ours.running_mean, theirs.running_mean) < 1e-13
        assert largest_difference(ours.running_var, theirs.running_var) < 1e-13
    ours.eval(), theirs.eval()
    assert largest_difference(ours(x, REAL)[REAL], theirs(x[REAL])) < 1e-12


def test_batch_norm_without_a_mask_takes_all_tokens():
    ours, theirs = twins(5)
    ours.train()
    x = numbers(3, 6, 5)
    assert largest_difference(ours(x).flatten(0, 1), theirs(x.flatten(0, 1))) < 1e-12


def test_what_stands_in_the_padding_does_not_matter_to_batch_norm():
    results = []
    for rubbish in (0.0, 1e6):
        norm = fill(BatchNorm(5)).train()
        x = numbers(3, 6, 5).masked_fill(~REAL[..., None], rubbish)
        results.append((norm(x, REAL)[REAL], norm.running_mean, norm.running_var))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_batch_norm_when_not_training_treats_each_token_alone_and_remembers_nothing():
    norm = fill(BatchNorm(5))
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    x = numbers(3, 6, 5)
    assert largest_difference(norm(x, REAL)[1:2, 3:4], norm(x[1:2, 3:4])) == 0
    assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("n_rows", [0, 1])
def test_batch_norm_survives_a_batch_with_nothing_or_one_token_in_it(n_rows):
    """A rank may get no rows in the last step: that must not spoil what was learned."""
    norm = fill(BatchNorm(5)).train()
    x = numbers(1, 1, 5)[:n_rows]
    out = norm(x, torch.ones(n_rows, 1, dtype=torch.bool))
    assert out.shape == x.shape
    assert all(value.isfinite().all() for value in [out, *norm.state_dict().values()])
