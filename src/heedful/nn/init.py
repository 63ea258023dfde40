"""Initial weights. Each function sets the weights of a whole model."""

import math
from collections.abc import Callable

from torch import nn

from .attention import MultiHeadAttention
from .embeddings import TokenEmbedding
from .feedforward import FeedForward, GatedFeedForward


def xavier(model: nn.Module) -> None:
    """Set Glorot's uniform matrices, zero biases, and embeddings with variance 1 / D, as in the paper of 2017."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            _zero_bias(module)
    _embeddings(model)


def t5(model: nn.Module) -> None:
    """Set variance 1 / inputs, and 1 / (inputs x K) for queries, so that q . k need not be divided by sqrt(K)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            _zero_bias(module)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            nn.init.normal_(module.to_q.weight, std=(module.to_q.in_features * module.d_head) ** -0.5)
    _embeddings(model)


def gpt2(model: nn.Module) -> None:
    """Set standard deviation 0.02; divided by the root of their number for layers that add to the residual stream."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            _zero_bias(module)
    into_residual = [
        module.to_out if isinstance(module, MultiHeadAttention) else module.outer
        for module in model.modules()
        if isinstance(module, (MultiHeadAttention, FeedForward, GatedFeedForward))
    ]
    for linear in into_residual:
        nn.init.normal_(linear.weight, std=0.02 / math.sqrt(len(into_residual)))


def bert(model: nn.Module) -> None:
    """Set standard deviation 0.02 and zero biases, as BERT and ViT do."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding, nn.Conv2d)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            _zero_bias(module)


INITS: dict[str, Callable[[nn.Module], None]] = {"xavier": xavier, "t5": t5, "gpt2": gpt2}


def _embeddings(model: nn.Module) -> None:
    # Called last, since a tied output layer is a Linear too and was just set.
    for module in model.modules():
        if isinstance(module, TokenEmbedding):
            nn.init.normal_(module.table.weight, std=module.table.embedding_dim**-0.5)


def _zero_bias(linear: nn.Linear | nn.Conv2d) -> None:
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
