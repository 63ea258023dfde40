"""How large the numbers of a weight are by design, beside those of other models: it learns at that many times the rate.

AdamW and Muon move every number by about the rate, however large it is. T5 writes two things in another unit: its
embeddings have variance one where others multiply small ones by sqrt(D), and its queries are smaller by sqrt(K) where
others divide the scores. Each at its own rate, a step is the one that the others would have taken. (T5's own optimiser,
Adafactor, makes each step in proportion to the weight.)
"""

from torch import nn

from heedful.models.t5 import T5
from heedful.nn.attention import MultiHeadAttention


def magnitudes(model: nn.Module) -> dict[int, float]:
    """By the id of a parameter; those that are not there have 1."""
    found: dict[int, float] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.scale is not None:
            for parameter in module.to_q.parameters():
                found[id(parameter)] = module.d_head**-0.5 / module.scale
        if isinstance(module, T5):
            found[id(module.embedding.table.weight)] = module.config.d_model**0.5
    return found
