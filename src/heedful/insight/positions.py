"""Position codes of a model: the code as an image, the similarity of positions, and attention biases."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.insight.model_layout import model_layout
from heedful.insight.packed_arrays import Packed, pack
from heedful.models.bert import Bert
from heedful.models.seq2seq import Seq2Seq
from heedful.models.t5 import T5
from heedful.models.universal import Universal
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.positions import Learned, NoPositions, Rotary

FEWEST_ROWS, MOST_ROWS = 20, 256


@dataclass(frozen=True)
class Bias:
    """The biases that relative positions add to the scores of self-attention."""

    encoder: Packed  # (H, R, R)
    decoder: Packed


@dataclass(frozen=True)
class Positions:
    """The position code of R positions."""

    kind: str
    rows: int
    code: Packed | None  # (R, D); for rotary positions (R, K)
    target_code: Packed | None  # only if the decoder has a separate code
    similarity: Packed | None  # (R, R): cosine between rows of the code
    bias: Bias | None


def position_facts(model: nn.Module, n_tokens: int) -> Positions:
    """Compute the code of max(20, number of tokens) positions, at most 256."""
    kind = model_layout(model).positions
    rows = min(max(FEWEST_ROWS, n_tokens), MOST_ROWS)
    if kind == "learned":
        rows = min(rows, *(module.table.num_embeddings for module in model.modules() if isinstance(module, Learned)))
    positions = torch.arange(rows, device=next(model.parameters()).device)
    code = _rotation(model, positions) if kind == "rotary" else position_code(model, "source", positions)
    has_two = kind == "learned" and hasattr(model, "target_positions")
    target = position_code(model, "target", positions) if has_two else None
    return Positions(
        kind=kind,
        rows=rows,
        code=None if code is None else pack(code, "f16"),
        target_code=None if target is None else pack(target, "f16"),
        similarity=None if code is None else pack(_cosines(code), "f16"),
        bias=_bias(model, positions),
    )


def position_code(model: nn.Module, text: str, positions: Tensor) -> Tensor | None:
    """Return what is added at these positions of the "source" or "target", (R, D): the module's output for zeros."""
    linear = next(module for module in model.modules() if isinstance(module, MultiHeadAttention)).to_q
    weight = linear.weight
    zeros = torch.zeros(1, len(positions), linear.in_features, dtype=weight.dtype, device=weight.device)
    if isinstance(model, Universal):  # the code of the first step; later steps add the code of the step as well
        return model.encoder_steps.add_position_and_step(zeros, positions, 0)[0]
    module = getattr(model, f"{text}_positions", None) or getattr(model, "positions", None)
    if module is None or isinstance(module, NoPositions):
        return None
    code: Tensor = module(zeros, positions)[0]
    return code + model.segments.weight[0] if isinstance(model, Bert) else code


def _rotation(model: nn.Module, positions: Tensor) -> Tensor:
    """Return cosine and sine of each pair's angle alternately, (R, K): the rotation of (1, 0, 1, 0, …)."""
    rotary = next(module for module in model.modules() if isinstance(module, Rotary))
    pairs = torch.zeros(1, 1, len(positions), rotary.d_head, dtype=torch.float64, device=positions.device)
    half = rotary.d_head // 2
    if rotary.layout == "halves":
        pairs[..., :half] = 1.0
    else:
        pairs[..., 0::2] = 1.0
    rotated: Tensor = rotary(pairs, positions)[0, 0]
    if rotary.layout == "halves":
        return torch.stack([rotated[:, :half], rotated[:, half:]], dim=-1).flatten(1)
    return rotated


def _cosines(code: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(code.double(), dim=1)
    return unit @ unit.T


def _bias(model: nn.Module, positions: Tensor) -> Bias | None:
    if not isinstance(model, (Seq2Seq, T5)) or model.encoder.bias is None or model.decoder.bias is None:
        return None
    return Bias(
        encoder=pack(model.encoder.bias(positions, positions), "f16"),
        decoder=pack(model.decoder.bias(positions, positions), "f16"),
    )
