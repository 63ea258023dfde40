"""Stacks, the ways of joining them, and packed documents."""

import pytest
import torch
import torch.nn.functional as F

from deterministic import fill, largest_difference, numbers
from heedful.nn.attention import MultiHeadAttention, attend, attend_fused
from heedful.nn.feedforward import FeedForward
from heedful.nn.layers import DecoderLayer, EncoderLayer, PreNorm
from heedful.nn.masks import causal_mask, combine, document_mask, padding_mask
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Alibi, RelativeBias, Rotary, Sinusoidal
from heedful.nn.stacks import Decoder, Encoder, LastLayer, LearnedMix, MatchingLayer

D_MODEL, N_HEADS = 8, 2


def attention(rotary=None, attend=attend_fused):
    return MultiHeadAttention(d_model=D_MODEL, n_heads=N_HEADS, rotary=rotary, attend=attend)


def residual():
    return PreNorm(LayerNorm(D_MODEL), 0.0)


def encoder_layer(rotary=None, attend=attend_fused):
    return EncoderLayer(
        attention=attention(rotary, attend),
        feed_forward=FeedForward(d_model=D_MODEL, d_ff=12, activation=F.relu),
        attention_residual=residual(),
        feed_forward_residual=residual(),
    )


def decoder_layer():
    return DecoderLayer(
        attention=attention(),
        cross_attention=attention(),
        feed_forward=FeedForward(d_model=D_MODEL, d_ff=12, activation=F.relu),
        attention_residual=residual(),
        cross_attention_residual=residual(),
        feed_forward_residual=residual(),
    )


def encoder(*, n_layers=2, join=None, bias=None, rotary=None, attend=attend_fused):
    return fill(
        Encoder(
            layers=[encoder_layer(rotary, attend) for _ in range(n_layers)],
            join=join or LastLayer(),
            final_norm=LayerNorm(D_MODEL),
            bias=bias,
        )
    )


def outputs_of(module, x, **options) -> list:
    positions = torch.arange(x.size(1))
    outputs = []
    for layer in module.layers:
        x = layer(x, positions=positions, **options)
        outputs.append(x)
    return outputs


# Joining


def test_the_last_layer_is_read_by_all():
    module, x = encoder(n_layers=3), numbers(2, 4, D_MODEL)
    (memory,) = module(x, positions=torch.arange(4))
    assert torch.equal(memory, module.final_norm(outputs_of(module, x)[-1]))


@pytest.mark.parametrize(
    ("n_encoder", "n_decoder", "reads"),
    [(3, 3, [0, 1, 2]), (6, 3, [1, 3, 5]), (2, 4, [0, 0, 1, 1]), (6, 1, [5]), (1, 3, [0, 0, 0]), (3, 2, [1, 2])],
)
def test_each_layer_reads_the_matching_one(n_encoder, n_decoder, reads):
    join = MatchingLayer(n_encoder_layers=n_encoder, n_decoder_layers=n_decoder)
    module, x = encoder(n_layers=n_encoder, join=join), numbers(2, 4, D_MODEL)
    memories = module(x, positions=torch.arange(4))
    outputs = outputs_of(module, x)
    assert len(memories) == n_decoder
    for memory, wanted in zip(memories, reads, strict=True):
        assert torch.equal(memory, module.final_norm(outputs[wanted]))


def test_a_learned_mix_is_a_weighted_mean_for_each_layer():
    join = LearnedMix(n_encoder_layers=3, n_decoder_layers=2)
    assert torch.equal(join.mixture.softmax(-1), torch.full((2, 3), 1 / 3))  # an even one at first
    module, x = encoder(n_layers=3, join=join), numbers(2, 4, D_MODEL)
    memories, outputs = module(x, positions=torch.arange(4)), outputs_of(module, x)
    for n, memory in enumerate(memories):
        shares = module.join.mixture[n].softmax(0)
        mean = sum(share * output for share, output in zip(shares, outputs, strict=True))
        assert largest_difference(memory, module.final_norm(mean)) < 1e-13


def test_each_decoder_layer_reads_its_own_memory_or_the_only_one():
    module = fill(Decoder(layers=[decoder_layer(), decoder_layer()], final_norm=LayerNorm(D_MODEL)))
    x = numbers(2, 3, D_MODEL)
    first, second = numbers(2, 5, D_MODEL, name="first"), numbers(2, 5, D_MODEL, name="second")
    y = module.layers[1](module.layers[0](x, first), second)
    assert torch.equal(module(x, [first, second], positions=torch.arange(3)), module.final_norm(y))
    y = module.layers[1](module.layers[0](x, first), first)
    assert torch.equal(module(x, [first], positions=torch.arange(3)), module.final_norm(y))


def test_one_layer_many_times_shares_its_weights():
    layer = encoder_layer()
    module = fill(Encoder(layers=[layer] * 3, join=LastLayer()))
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in layer.parameters())
    x = numbers(2, 4, D_MODEL)
    assert torch.equal(module(x, positions=torch.arange(4))[0], layer(layer(layer(x))))


# What a stack of self-attention knows of order


@pytest.mark.parametrize("attend", [attend, attend_fused], ids=["formula", "fused"])
def test_without_positions_an_encoder_commutes_with_every_shuffle(attend):
    module, x = encoder(attend=attend), numbers(3, 7, D_MODEL)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    real = torch.arange(7)[None] < torch.tensor([[7], [4], [1]])

    def run(x, real):
        return module(x, positions=torch.arange(7), mask=padding_mask(real), real=real)[0]

    assert largest_difference(run(x, real)[:, order], run(x[:, order], real[:, order])) < 1e-12


@pytest.mark.parametrize(
    "options",
    [
        {"rotary": Rotary(d_head=D_MODEL // N_HEADS)},
        {"bias": RelativeBias(n_heads=N_HEADS, bidirectional=True)},
        {"bias": Alibi(n_heads=N_HEADS)},
    ],
    ids=["rotary", "relative", "alibi"],
)
def test_with_relative_positions_a_shuffle_matters_and_a_shift_does_not(options):
    module, x = encoder(**options), numbers(1, 5, D_MODEL)
    order = torch.tensor([1, 0, 2, 3, 4])
    (plain,), (shuffled,) = (module(y, positions=torch.arange(5)) for y in (x, x[:, order]))
    assert largest_difference(plain[:, order], shuffled) > 1e-3
    (shifted,) = module(x, positions=torch.arange(5) + 100)
    assert largest_difference(plain, shifted) < 1e-11


# Packed documents


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_documents_are_as_if_each_stood_alone(scheme, causal):
    rotary = Rotary(d_head=D_MODEL // N_HEADS) if scheme == "rotary" else None
    bias = {"relative": RelativeBias(n_heads=N_HEADS, bidirectional=True), "alibi": Alibi(n_heads=N_HEADS)}.get(scheme)
    module = encoder(rotary=rotary, bias=bias)
    lengths = [[3, 4, 2], [1, 6, 2]]  # two rows of nine tokens
    documents = torch.tensor([[n for n, length in enumerate(row) for _ in range(length)] for row in lengths])
    positions = torch.tensor([[i for length in row for i in range(length)] for row in lengths])
    x = numbers(2, 9, D_MODEL)

    def run(x, positions, mask):
        x = Sinusoidal()(x, positions) if scheme == "sinusoidal" else x
        return module(x, positions=positions, mask=mask)[0]

    packed = run(x, positions, combine(document_mask(documents), causal_mask(9) if causal else None))
    for row, row_lengths in enumerate(lengths):
        start = 0
        for length in row_lengths:
            alone = run(
                x[row : row + 1, start : start + length],
                torch.arange(length),
                causal_mask(length) if causal else None,
            )
            assert largest_difference(packed[row, start : start + length], alone[0]) < 1e-12
            start += length
