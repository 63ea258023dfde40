"""Feed-forward, dropout, residuals and layers: the wiring of figure 1, line by line."""

import pytest
import torch
import torch.nn.functional as F

from deterministic import fill, largest_difference, numbers
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.feedforward import FEED_FORWARDS, FeedForward, GatedFeedForward
from heedful.nn.layers import RESIDUALS, DecoderLayer, EncoderLayer, NoResidual, PostNorm, PreNorm
from heedful.nn.masks import causal_mask, padding_mask
from heedful.nn.norms import BatchNorm, LayerNorm

BENDS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "swish": lambda x: x * torch.sigmoid(x),
    "swiglu": lambda x: x * torch.sigmoid(x),
    "geglu": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_feed_forward_is_two_matrices_with_an_activation_between(name):
    network, activation = FEED_FORWARDS[name]
    module = fill(network(d_model=4, d_ff=7, activation=activation))
    x = numbers(2, 3, 4)
    hidden = x @ module.inner.weight.T + module.inner.bias
    if isinstance(module, GatedFeedForward):
        hidden = BENDS[name](x @ module.gate.weight.T + module.gate.bias) * hidden
    else:
        hidden = BENDS[name](hidden)
    wanted = hidden @ module.outer.weight.T + module.outer.bias
    assert largest_difference(module(x), wanted) < 1e-12
    assert (module(x) < 0).any()  # no bend after the second


def test_feed_forward_drops_hidden_numbers_in_training():
    module = fill(FeedForward(d_model=4, d_ff=7, activation=F.relu, dropout=0.5))
    x = numbers(2, 3, 4)
    assert torch.equal(module(x), module(x))
    module.train()
    assert not torch.equal(module(x), module(x))


def test_dropout_keeps_the_expectation_and_does_nothing_in_evaluation():
    torch.manual_seed(0)
    x = torch.ones(100_000)
    dropped = Dropout(0.25)(x)
    assert set(dropped.tolist()) == {0.0, float(torch.tensor(1 / 0.75))}
    assert abs(dropped.mean() - 1) < 0.01
    assert torch.equal(Dropout(0.25).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="lies in"):
            Dropout(wrong)


def test_the_three_residuals():
    x = numbers(2, 3, 4)

    def f(y):
        return y.square()

    def norm_of(module):
        return fill(module(LayerNorm(4), 0.0)).norm

    norm = norm_of(PreNorm)
    assert largest_difference(PreNorm(norm, 0.0)(x, f), x + f(norm(x))) == 0
    assert largest_difference(PostNorm(norm, 0.0)(x, f), norm(x + f(x))) == 0
    assert largest_difference(NoResidual(norm, 0.0)(x, f), norm(f(x))) == 0


@pytest.mark.parametrize("name", RESIDUALS)
def test_residuals_drop_what_is_added_and_nothing_else(name):
    module = fill(RESIDUALS[name](LayerNorm(64), 0.5)).train()
    module.norm = torch.nn.Identity()
    module.norm.forward = lambda x, real=None: x
    x = numbers(2, 3, 64)
    torch.manual_seed(0)
    out = module(x, lambda y: torch.ones_like(y))
    added = out - x if name != "none" else out
    assert ((added.abs() < 1e-12) | ((added - 2).abs() < 1e-12)).all()
    assert 0 < (added.abs() < 1e-12).sum() < added.numel()


@pytest.mark.parametrize("name", RESIDUALS)
def test_residuals_pass_the_mask_of_real_tokens_to_the_norm(name):
    real = torch.arange(3)[None] < torch.tensor([[3], [1]])
    results = []
    for rubbish in (0.0, 1e3):
        module = fill(RESIDUALS[name](BatchNorm(4), 0.0)).train()
        x = numbers(2, 3, 4).masked_fill(~real[..., None], rubbish)
        results.append(module(x, torch.square, real)[real])
    assert torch.equal(*results)


def attention():
    return MultiHeadAttention(d_model=8, n_heads=2)


def feed_forward():
    return FeedForward(d_model=8, d_ff=12, activation=F.relu)


def residual():
    return PostNorm(LayerNorm(8), 0.0)


def test_the_encoder_layer_is_figure_1_left():
    layer = fill(
        EncoderLayer(
            attention=attention(),
            feed_forward=feed_forward(),
            attention_residual=residual(),
            feed_forward_residual=residual(),
        )
    )
    x = numbers(2, 5, 8)
    mask = padding_mask(torch.arange(5)[None] < torch.tensor([[5], [3]]))
    bias = numbers(2, 5, 5, name="bias")
    y = layer.attention_residual.norm(x + layer.attention(x, mask=mask, bias=bias))
    wanted = layer.feed_forward_residual.norm(y + layer.feed_forward(y))
    assert largest_difference(layer(x, mask=mask, bias=bias), wanted) == 0


def test_the_decoder_layer_is_figure_1_right():
    layer = fill(
        DecoderLayer(
            attention=attention(),
            cross_attention=attention(),
            feed_forward=feed_forward(),
            attention_residual=residual(),
            cross_attention_residual=residual(),
            feed_forward_residual=residual(),
        )
    )
    x, memory = numbers(2, 4, 8), numbers(2, 5, 8, name="memory")
    mask, bias = causal_mask(4), numbers(2, 4, 4, name="bias")
    memory_mask = padding_mask(torch.arange(5)[None] < torch.tensor([[5], [3]]))
    y = layer.attention_residual.norm(x + layer.attention(x, mask=mask, bias=bias))
    z = layer.cross_attention_residual.norm(y + layer.cross_attention(y, memory, mask=memory_mask))
    wanted = layer.feed_forward_residual.norm(z + layer.feed_forward(z))
    assert largest_difference(layer(x, memory, mask=mask, bias=bias, memory_mask=memory_mask), wanted) == 0
