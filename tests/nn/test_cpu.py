"""Even rows in bfloat16: the numbers and gradients are autocast's own, the sizes of the products are few."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.nn.cpu import ROW_MULTIPLE, Linear, gelu, linear, pad_rows


def layer_and_rows(*shape: int, bias: bool = True) -> tuple[Linear, Tensor]:
    torch.manual_seed(1)
    return Linear(shape[-1], 24, bias=bias), torch.randn(*shape, requires_grad=True)


def results(product: Tensor, layer: Linear, x: Tensor) -> list[Tensor]:
    torch.manual_seed(2)
    wanted = [parameter for parameter in (x, layer.weight, layer.bias) if parameter is not None]
    grads = torch.autograd.grad((product * torch.randn_like(product)).sum(), wanted)
    return [product, *grads]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 5, 16), (ROW_MULTIPLE, 16), (2, 3, 100, 16), (1, 16)])
def test_it_is_what_autocast_makes_of_a_linear_layer(shape: tuple[int, ...], bias: bool) -> None:
    layer, x = layer_and_rows(*shape, bias=bias)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = layer(x), F.linear(x, layer.weight, layer.bias)
    for our, their in zip(results(ours, layer, x), results(theirs, layer, x), strict=True):
        assert our.dtype == their.dtype and our.shape == their.shape
        torch.testing.assert_close(our, their, rtol=2e-2, atol=2e-2)  # a bfloat16 has eight bits


def test_no_rows() -> None:
    layer, x = layer_and_rows(0, 7, 16)
    with torch.autocast("cpu", torch.bfloat16):
        product = layer(x)
    _, of_x, of_weight, of_bias = results(product, layer, x)
    assert product.shape == (0, 7, 24) and of_x.shape == x.shape
    assert not of_weight.any() and not of_bias.any()


def test_without_autocast_it_is_torchs_own() -> None:
    layer, x = layer_and_rows(3, 5, 16)
    assert all(map(torch.equal, results(layer(x), layer, x), results(F.linear(x, layer.weight, layer.bias), layer, x)))


def test_frozen_weights_get_no_gradient() -> None:
    layer, x = layer_and_rows(3, 16)
    layer.requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x).sum().backward()
    assert x.grad is not None and layer.weight.grad is None and layer.bias.grad is None


def test_products_have_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: set[int] = set()
    torchs = F.linear
    monkeypatch.setattr(F, "linear", lambda x, *rest: sizes.add(len(x)) or torchs(x, *rest))
    weight = torch.randn(8, 16)
    with torch.autocast("cpu", torch.bfloat16):
        for n_rows in range(1, 3 * ROW_MULTIPLE + 1, 7):
            linear(torch.randn(n_rows, 16), weight)
    assert sizes == {ROW_MULTIPLE, 2 * ROW_MULTIPLE, 3 * ROW_MULTIPLE}


def test_only_bfloat16_is_padded() -> None:
    rows = torch.randn(5, 3)
    assert pad_rows(rows) is rows
    assert (
        torch.equal(pad_rows(rows.bfloat16())[:5], rows.bfloat16()) and len(pad_rows(rows.bfloat16())) == ROW_MULTIPLE
    )
    assert not pad_rows(rows.bfloat16())[5:].any()


def test_gelu_has_few_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 on a processor; the same numbers and gradients as without the rows of zeros."""
    torch.manual_seed(1)
    x = torch.randn(3, 50, 8, dtype=torch.bfloat16, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    sizes = []
    whole = F.gelu

    def watch(rows: Tensor) -> Tensor:
        sizes.append(len(rows))
        return whole(rows)

    monkeypatch.setattr(F, "gelu", watch)
    gelu(x).sum().backward()
    whole(y).sum().backward()
    assert sizes == [256]
    assert torch.equal(gelu(x), whole(y)) and torch.equal(x.grad, y.grad)
    gelu(torch.randn(3, 50, 8))
    assert sizes[-1] == 3
