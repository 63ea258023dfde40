"""Auxiliary losses for deep language models (Al-Rfou et al. 2018, section 3).

"Character-Level Language Modeling with Deeper Self-Attention" trains 64 layers, which plain training does not. Two of
its losses are here. Each has output layers that are used in training only and are not part of the saved model:

- every layer predicts the next token. Of n layers, layer l does so during the first l / 2n of the training, so after
  half of the training only the last layer is left;
- each position also predicts the tokens after the next one, with half the weight.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from heedful.data.collate import LmBatch
from heedful.models.gpt import Gpt
from heedful.nn.heads import VocabularyHead
from heedful.training.losses import linear_cross_entropy
from heedful.training.setting_ranges import Range, check_ranges

AUXILIARY = "auxiliary"  # name of the module that holds the output layers
WEIGHT = Range(0, 100)


@dataclass(frozen=True)
class AuxiliarySettings:
    """[auxiliary]: further losses of a language model."""

    layers: Annotated[float, WEIGHT] = 0.0  # weight of the losses of the lower layers; the paper's is 1, 0: none
    ahead: Annotated[int, Range(1, 16)] = 1  # how many tokens ahead each position predicts; the paper's is 2
    ahead_weight: Annotated[float, WEIGHT] = 0.5  # weight of the tokens beyond the next one

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def any(self) -> bool:
        """Return whether there is any auxiliary loss."""
        return self.layers > 0.0 or (self.ahead > 1 and self.ahead_weight > 0.0)


class AuxiliaryHeads(nn.Module):
    """An output layer for each layer and distance; the last layer's next token is predicted by the model itself."""

    def __init__(self, *, d_model: int, vocab_size: int, n_layers: int, settings: AuxiliarySettings) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.settings = settings
        first = 1 if settings.layers > 0.0 else n_layers
        self.targets = [
            (layer, ahead)
            for layer in range(first, n_layers + 1)
            for ahead in range(1, settings.ahead + 1)
            if (layer, ahead) != (n_layers, 1)
        ]
        self.heads = nn.ModuleList(VocabularyHead(d_model=d_model, vocab_size=vocab_size) for _ in self.targets)
        for matrix in self.matrices():
            nn.init.normal_(matrix, std=0.02)  # as in GPT-2

    def matrices(self) -> list[Tensor]:
        return [head.linear.weight for head in self.heads if isinstance(head, VocabularyHead)]

    def weight(self, layer: int, ahead: int, done: float) -> float:
        """Return the weight of the loss of a layer, from 1, for a token so far ahead, at a share `done` of training."""
        weight = 1.0 if ahead == 1 else self.settings.ahead_weight
        if layer == self.n_layers:
            return weight
        return weight * self.settings.layers if done < layer / (2 * self.n_layers) else 0.0

    def loss(self, model: Gpt, layers: list[Tensor], batch: LmBatch, *, isolate_documents: bool, done: float) -> Tensor:
        """Return auxiliary losses summed over the tokens of a batch; layers: the output of each layer (B, T, D)."""
        # Losses that are over contribute a gradient of zero: DDP waits for a gradient of every parameter.
        total = sum((0.0 * matrix.sum() for matrix in self.matrices()), layers[-1].new_zeros(()))
        for matrix, (layer, ahead) in zip(self.matrices(), self.targets, strict=True):
            if weight := self.weight(layer, ahead, done):
                states, target = _aligned(
                    model.final_norm(layers[layer - 1]), batch, ahead, isolate_documents=isolate_documents
                )
                total = total + weight * linear_cross_entropy(states, matrix, target)
        return total


def _aligned(states: Tensor, batch: LmBatch, ahead: int, *, isolate_documents: bool) -> tuple[Tensor, Tensor]:
    """Return the states that have a token so far ahead in their row (or their own document), and those tokens."""
    n = max(0, states.size(1) - (ahead - 1))
    here, there = slice(0, n), slice(states.size(1) - n, None)
    real = batch.target_mask[:, here] & batch.target_mask[:, there]
    if isolate_documents:
        real = real & (batch.documents[:, here] == batch.documents[:, there])
    return states[:, here][real], batch.target_out[:, there][real]


def with_auxiliary_heads(model: Gpt, settings: AuxiliarySettings) -> Gpt:
    """Add the output layers to a model; the weights that the model has already are not changed."""
    config = model.config
    torch.manual_seed(config.n_layers)  # the same weights on every rank
    heads = AuxiliaryHeads(
        d_model=config.d_model, vocab_size=config.vocab_size, n_layers=config.n_layers, settings=settings
    )
    model.add_module(AUXILIARY, heads)
    return model


def auxiliary_heads(model: nn.Module) -> AuxiliaryHeads | None:
    """Return the output layers for auxiliary losses, if the model has any."""
    heads = getattr(model, AUXILIARY, None)
    assert heads is None or isinstance(heads, AuxiliaryHeads)
    return heads
