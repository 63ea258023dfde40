"""Initialisations: the spread of every matrix is the one that its paper asks for."""

import math

import pytest
import torch
from torch import nn

from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 300, "target_vocab_size": 300, "d_model": 64, "d_ff": 96, "n_layers": 2, "n_heads": 2}
    return {name: Seq2Seq(Seq2SeqConfig(**sizes, d_head=48, init=name)) for name in ("xavier", "t5", "gpt2")}


def of(model: nn.Module, kind: type) -> list:
    return [module for module in model.modules() if isinstance(module, kind)]


def about(tensor, std: float) -> bool:
    """A sample of n numbers shows its standard deviation to about 1 / sqrt(2 n)."""
    return abs(tensor.std().item() / std - 1) < 5 / math.sqrt(2 * tensor.numel())


def test_xavier(models):
    for linear in of(models["xavier"], nn.Linear):
        if linear is models["xavier"].head.linear:  # tied: it is the embedding
            continue
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert linear.weight.abs().max() <= bound
        assert about(linear.weight, bound / math.sqrt(3))
        assert (linear.bias == 0).all()


@pytest.mark.parametrize("name", ["xavier", "t5"])
def test_embeddings_have_variance_one_over_d_model_even_when_tied(models, name):
    model = models[name]
    assert model.head.linear.weight is model.source_embedding.table.weight
    for embedding in of(model, TokenEmbedding):
        assert about(embedding.table.weight, 64**-0.5)
        assert about(embedding(torch.arange(300)), 1.0)


def test_t5_needs_no_division(models):
    """Variance 1 / (inputs x K) for queries: a score of unit vectors has variance one without / sqrt(K)."""
    for attention in of(models["t5"], MultiHeadAttention):
        assert about(attention.to_q.weight, (64 * 48) ** -0.5)
        assert about(attention.to_k.weight, 64**-0.5)
        assert about(attention.to_v.weight, 64**-0.5)
        assert about(attention.to_out.weight, (2 * 48) ** -0.5)
        assert attention.scale == 1.0
        x = torch.randn(1, 200, 64)
        q = attention.to_q(x).view(200, 2, 48).transpose(0, 1)
        k = attention.to_k(x).view(200, 2, 48).transpose(0, 1)
        assert abs((q @ k.transpose(1, 2)).std().item() - 1) < 0.15
    for network in of(models["t5"], FeedForward):
        assert about(network.inner.weight, 64**-0.5)
        assert about(network.outer.weight, 96**-0.5)


def test_gpt2_starts_small_and_divides_what_is_added(models):
    model = models["gpt2"]
    n_added = 2 * 2 + 3 * 2  # two in each encoder layer, three in each decoder layer
    for attention in of(model, MultiHeadAttention):
        assert about(attention.to_q.weight, 0.02)
        assert about(attention.to_out.weight, 0.02 / math.sqrt(n_added))
        assert (attention.to_out.bias == 0).all()
        assert attention.scale is None
    for network in of(model, FeedForward):
        assert about(network.inner.weight, 0.02)
        assert about(network.outer.weight, 0.02 / math.sqrt(n_added))
    assert about(model.source_embedding.table.weight, 0.02)
