"""How the model tells positions apart: the code as an image, and which positions look alike."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.insight.model_layout import anatomy
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
    encoder: Packed  # (H, R, R)
    decoder: Packed


@dataclass(frozen=True)
class Positions:
    kind: str
    rows: int
    code: Packed | None  # (R, D), or (R, K) of a rotation
    target_code: Packed | None  # where the decoder has one of its own
    similarity: Packed | None  # (R, R), the cosine between rows of the code
    bias: Bias | None


def position_facts(model: nn.Module, n_tokens: int) -> Positions:
    kind = anatomy(model).positions
    rows = min(max(FEWEST_ROWS, n_tokens), MOST_ROWS)
    if kind == "learned":
        rows = min(rows, *(one.table.num_embeddings for one in model.modules() if isinstance(one, Learned)))
    places = torch.arange(rows, device=next(model.parameters()).device)
    code = _rotation(model, places) if kind == "rotary" else position_code(model, "source", places)
    has_two = kind == "learned" and hasattr(model, "target_positions")
    target = position_code(model, "target", places) if has_two else None
    return Positions(
        kind=kind,
        rows=rows,
        code=None if code is None else pack(code, "f16"),
        target_code=None if target is None else pack(target, "f16"),
        similarity=None if code is None else pack(_cosines(code), "f16"),
        bias=_bias(model, places),
    )


def position_code(model: nn.Module, text: str, places: Tensor) -> Tensor | None:
    """What is added at each of these positions of the source or the target, (R, D): what the module makes of zeros."""
    like = next(one for one in model.modules() if isinstance(one, MultiHeadAttention)).to_q
    zeros = torch.zeros(1, len(places), like.in_features, dtype=like.weight.dtype, device=like.weight.device)
    if isinstance(model, Universal):  # at the first step; later ones add the code of the step as well
        return model.encoder_steps.add_position_and_step(zeros, places, 0)[0]
    module = getattr(model, f"{text}_positions", None) or getattr(model, "positions", None)
    if module is None or isinstance(module, NoPositions):
        return None
    code: Tensor = module(zeros, places)[0]
    return code + model.segments.weight[0] if isinstance(model, Bert) else code


def _rotation(model: nn.Module, places: Tensor) -> Tensor:
    """Cosine and sine of each pair's angle in turn, (R, K): where the rotation takes (1, 0, 1, 0, …)."""
    rotary = next(module for module in model.modules() if isinstance(module, Rotary))
    pairs = torch.zeros(1, 1, len(places), rotary.d_head, dtype=torch.float64, device=places.device)
    half = rotary.d_head // 2
    if rotary.layout == "halves":
        pairs[..., :half] = 1.0
    else:
        pairs[..., 0::2] = 1.0
    turned: Tensor = rotary(pairs, places)[0, 0]
    return torch.stack([turned[:, :half], turned[:, half:]], dim=-1).flatten(1) if rotary.layout == "halves" else turned


def _cosines(code: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(code.double(), dim=1)
    return unit @ unit.T


def _bias(model: nn.Module, places: Tensor) -> Bias | None:
    if not isinstance(model, (Seq2Seq, T5)) or model.encoder.bias is None or model.decoder.bias is None:
        return None
    return Bias(
        encoder=pack(model.encoder.bias(places, places), "f16"),
        decoder=pack(model.decoder.bias(places, places), "f16"),
    )
