"""How the model tells positions apart: the code as an image, and which positions look alike."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.insight.packing import Packed, pack
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.positions import NoPositions, Rotary

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


def position_facts(model: Seq2Seq, n_tokens: int) -> Positions:
    kind = model.config.positions
    rows = min(max(FEWEST_ROWS, n_tokens), MOST_ROWS)
    if kind == "learned":
        rows = min(rows, model.config.max_len)
    places = torch.arange(rows, device=next(model.parameters()).device)
    code = position_code(model.source_positions, places, model)
    if kind == "rotary":
        code = _rotation(model, places)
    target = position_code(model.target_positions, places, model) if kind == "learned" else None
    return Positions(
        kind=kind,
        rows=rows,
        code=None if code is None else pack(code, "f16"),
        target_code=None if target is None else pack(target, "f16"),
        similarity=None if code is None else pack(_cosines(code), "f16"),
        bias=_bias(model, places),
    )


def position_code(module: nn.Module, places: Tensor, model: Seq2Seq) -> Tensor | None:
    """What is added at each of these positions, (R, D): what the module makes of zeros."""
    if isinstance(module, NoPositions):
        return None
    like = next(model.parameters())
    zeros = torch.zeros(1, len(places), model.config.d_model, dtype=like.dtype, device=like.device)
    code: Tensor = module(zeros, places)
    return code[0]


def _rotation(model: Seq2Seq, places: Tensor) -> Tensor:
    """Cosine and sine of each pair's angle in turn, (R, K): where the rotation takes (1, 0, 1, 0, …)."""
    rotary = next(module for module in model.encoder.modules() if isinstance(module, Rotary))
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


def _bias(model: Seq2Seq, places: Tensor) -> Bias | None:
    if model.encoder.bias is None or model.decoder.bias is None:
        return None
    return Bias(
        encoder=pack(model.encoder.bias(places, places), "f16"),
        decoder=pack(model.decoder.bias(places, places), "f16"),
    )
