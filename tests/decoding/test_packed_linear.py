"""The product with packed weights equals F.linear, for every layout, number of rows and number of threads."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from heedful.decoding.steps.packed_linear import ACTIVATIONS, SMALL, Function, PackedLinear, packing_works
from heedful.nn.feedforward import FEED_FORWARDS


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [1, 2, 5, 64])
@pytest.mark.parametrize("shape", [(8, 4), (320, 256), (256, 320)])  # (outputs, inputs)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("has_bias", [True, False])
def test_the_product_is_that_of_linear(
    threads: int, shape: tuple[int, int], n_rows: int, activation: Function | None, has_bias: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(n_rows)
    weight, x = (torch.randn(*size, generator=generator, dtype=dtype) for size in (shape, (n_rows, shape[1])))
    bias = torch.randn(shape[0], generator=generator, dtype=dtype) if has_bias else None
    expected = F.linear(x, weight, bias)
    with torch.inference_mode():
        y = PackedLinear(weight, bias, activation)(x)
    torch.testing.assert_close(y, expected if activation is None else activation(expected), rtol=1e-5, atol=1e-4)


def test_every_activation_of_a_plain_network_can_be_fused() -> None:
    assert {activation for network, activation in FEED_FORWARDS.values() if network.__name__ == "FeedForward"} <= set(
        ACTIVATIONS
    )


def test_large_weights_are_packed() -> None:
    """If this torch can pack weights; else the test above would prove nothing."""
    if not packing_works():
        pytest.skip("this torch has no packed products")
    linear = PackedLinear(torch.randn(SMALL // 64, 64), None)
    linear(torch.randn(5, 64))
    assert linear.packed.is_mkldnn
