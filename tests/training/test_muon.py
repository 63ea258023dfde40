"""Muon: orthogonal updates for inner matrices, AdamW for all other parameters, one state to save."""

import copy

import pytest
import torch
from torch import Tensor, nn

from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.training.checkpoint import load_optimiser_tensors, optimiser_tensors
from heedful.training.muon import ADAMW_RMS, Muon, matrices_within, orthogonalise, orthogonalise_all
from heedful.training.optim import OptimiserSettings, make_optimiser, set_rate

SETTINGS = OptimiserSettings(kind="muon", weight_decay=0.1)


def tiny(tied: str = "all") -> Seq2Seq:
    torch.manual_seed(0)
    config = Seq2SeqConfig(
        source_vocab_size=20,
        target_vocab_size=20,
        d_model=16,
        d_ff=24,
        n_heads=2,
        n_layers=1,
        dropout=0.0,
        tied=tied,  # type: ignore[arg-type]
    )
    return Seq2Seq(config).double()


def steps(model: Seq2Seq, optimiser: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        ids = torch.randint(4, 20, (3, 5), generator=torch.Generator().manual_seed(number))
        real = torch.ones_like(ids, dtype=torch.bool)
        logits = model(ids, ids, source_mask=real, target_mask=real)
        nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        set_rate(optimiser, 0.01)
        optimiser.step()
        optimiser.zero_grad()


@pytest.mark.parametrize("shape", [(16, 16), (16, 48), (48, 16)])
def test_all_singular_values_become_alike(shape: tuple[int, int]) -> None:
    """Orthogonalising keeps singular vectors and brings singular values near 1."""
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    assert values.max() / values.min() > 1.5
    turned = left.T @ orthogonalise(matrix[None])[0] @ right.T
    torch.testing.assert_close(turned, torch.diag(turned.diagonal()), atol=1e-6, rtol=0)
    assert 0.6 < turned.diagonal().min() <= turned.diagonal().max() < 1.3


def test_batched_is_one_by_one() -> None:
    generator = torch.Generator().manual_seed(2)
    shapes = [(4, 6), (6, 4), (4, 6), (5, 5), (4, 6)]
    matrices = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    for together, matrix in zip(orthogonalise_all(matrices), matrices, strict=True):
        torch.testing.assert_close(together, orthogonalise(matrix[None])[0])


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_embeddings_and_output_layers_use_adamw(tied: str) -> None:
    model = tiny(tied)
    chosen = {id(matrix) for matrix in matrices_within(model)}
    names = [name for name, parameter in model.named_parameters() if id(parameter) in chosen]
    assert len(names) == len(chosen) == 6 + 10  # q, k, v, out, inner, outer; and the cross-attention's four
    assert all(name.startswith(("encoder.", "decoder.")) for name in names)


def test_every_parameter_is_in_the_optimiser_once() -> None:
    model = tiny()
    optimiser = make_optimiser(model, SETTINGS)
    ids = [id(parameter) for group in optimiser.param_groups for parameter in group["params"]]
    assert sorted(ids) == sorted(map(id, model.parameters()))


def test_two_steps_are_the_formula() -> None:
    model = tiny()
    optimiser = make_optimiser(model, SETTINGS)
    assert isinstance(optimiser, Muon)
    parameter = model.get_parameter("encoder.layers.0.feed_forward.inner.weight")
    expected, momentum = parameter.detach().clone(), torch.zeros_like(parameter)
    for number in (3, 4):
        generator = torch.Generator().manual_seed(number)
        gradient = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        parameter.grad = gradient.clone()
        set_rate(optimiser, 0.01)
        optimiser.step()
        momentum = 0.95 * momentum + 0.05 * gradient
        ahead = 0.95 * momentum + 0.05 * gradient
        update = ADAMW_RMS * 24**0.5 * orthogonalise(ahead[None])[0]
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * update
    torch.testing.assert_close(parameter.detach(), expected)


def test_updates_are_as_large_as_those_of_adamw() -> None:
    """So one learning rate serves both kinds of parameters."""
    moved: dict[str, float] = {}
    for kind in ("muon", "adamw"):
        model = tiny()
        before = copy.deepcopy(model)
        optimiser = make_optimiser(model, OptimiserSettings(kind=kind))  # type: ignore[arg-type]
        steps(model, optimiser, range(20))
        name = "decoder.layers.0.attention.to_v.weight"
        moved[kind] = (model.get_parameter(name) - before.get_parameter(name)).norm().item()
    assert 0.2 < moved["muon"] / moved["adamw"] < 5


def test_resumed_is_uninterrupted() -> None:
    whole, first = tiny(), tiny()
    optimiser = make_optimiser(whole, SETTINGS)
    steps(whole, optimiser, range(6))
    begun = make_optimiser(first, SETTINGS)
    steps(first, begun, range(3))
    saved = {name: tensor.clone() for name, tensor in optimiser_tensors(first, begun).items()}
    second = copy.deepcopy(first)
    resumed = make_optimiser(second, SETTINGS)
    load_optimiser_tensors(second, resumed, saved)
    steps(second, resumed, range(3, 6))
    different = [
        name
        for (name, ours), theirs in zip(second.named_parameters(), whole.parameters(), strict=True)
        if not torch.equal(ours, theirs)
    ]
    assert different == []
    ends: list[dict[str, Tensor]] = [optimiser_tensors(second, resumed), optimiser_tensors(whole, optimiser)]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("matrices_learn", [True, False])
def test_matrices_or_the_rest_may_be_frozen(matrices_learn: bool) -> None:
    """With all matrices frozen only AdamW updates weights; with all others frozen only Muon does."""
    model = tiny()
    inside = {id(matrix) for matrix in matrices_within(model)}
    for parameter in model.parameters():
        parameter.requires_grad_((id(parameter) in inside) == matrices_learn)
    optimiser = make_optimiser(model, SETTINGS)
    before = copy.deepcopy(model)
    steps(model, optimiser, range(1))
    for (name, now), then in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(now, then) != now.requires_grad, name
    saved = optimiser_tensors(model, optimiser)
    again = make_optimiser(model, SETTINGS)
    load_optimiser_tensors(model, again, saved)
    restored = optimiser_tensors(model, again)
    assert saved.keys() == restored.keys() and all(torch.equal(saved[key], restored[key]) for key in saved)
